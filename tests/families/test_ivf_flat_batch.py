"""The family ``ivf_flat_batch``: its kernels link without calls, and compute what NumPy does, on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jitlto.check.covering_array import choose_cover
from jitlto.runtime.family import KernelFamily
from tests.families.test_ivf_flat import failures
from tests.support.ivf_flat_host import COMPILER, HostFamily, numpy_for_cupy
from tests.support.ivf_flat_reference import Case, check, make_case, words

NO_LIST = 0xFFFFFFFF
#: Functions that a kernel calls in other fragments: two of the metric and the filter; the post_lambda.
CALLED = {
    "tiled_scan": 3,
    "select_probed": 1,
    "sort_probes": 0,
    "select_columns": 0,
    "index_step": 0,
    "convert_rows": 0,
    "store_rows": 0,
}
#: Metrics, filters and post_lambdas of which every value occurs.
LINKED = [
    ("euclidean", "none", "identity"),
    ("inner_product", "bitset", "compose"),
    ("euclidean", "bitset", "sqrt"),
]


def covering(family: KernelFamily, entry: str, strength: int) -> list[dict[str, str]]:
    every = [each for each in family.configurations() if each["entry"] == entry]
    return [every[place] for place in choose_cover(every, strength)[0]]


def test_it_has_these_kernels(ivf_flat_batch: KernelFamily) -> None:
    entries = [each["entry"] for each in ivf_flat_batch.configurations()]
    counts = {entry: entries.count(entry) for entry in ivf_flat_batch.entrypoints}
    scans = {"sort_probes": 4, "tiled_scan": 16 * 2 * 2, "select_probed": 18 * 3, "select_columns": 18}
    assert counts == scans | {"index_step": 9, "convert_rows": 4, "store_rows": 3}
    assert len(ivf_flat_batch.database.fragments("ivf_flat")) == 341


@pytest.mark.parametrize("entry", ["tiled_scan", "select_probed"])
def test_all_pairs_of_variants_link_and_nothing_is_left_to_call(ivf_flat_batch: KernelFamily, entry: str) -> None:
    chosen = covering(ivf_flat_batch, entry, 2)
    assert failures(ivf_flat_batch, "sm_90", chosen, fragments=CALLED[entry]) == []


@pytest.mark.parametrize("arch", ["sm_80", "sm_100", "sm_120"])
def test_all_kernels_link_for_other_architectures(ivf_flat_batch: KernelFamily, arch: str) -> None:
    for entry in ivf_flat_batch.entrypoints:
        assert failures(ivf_flat_batch, arch, covering(ivf_flat_batch, entry, 1), fragments=CALLED[entry]) == []


# --- on a CPU ---


@pytest.fixture(scope="module", params=LINKED, ids="-".join)
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HostFamily:
    if COMPILER is None:
        pytest.skip("there is no g++")
    pytest.importorskip("docs.examples.ivf_flat", exc_type=ImportError)
    return HostFamily(tmp_path_factory.mktemp("host"), *request.param)


def part_of(case: Case, query: int, lists: np.ndarray[Any, Any]) -> tuple[Case, np.ndarray[Any, Any]]:
    """What one query sees that probes some lists; its vectors are numbered, in the order of the ids returned."""
    members = np.isin(case.labels, lists)
    ids = case.ids[members]
    mask = None if case.mask is None else case.mask[ids]
    numbers = np.arange(len(ids))
    return Case(case.vectors[members], numbers, numbers * 0, 1, case.queries[query : query + 1], mask), ids


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "m", "dim", "veclen", "k"),
    [(700, 33, 7, 1, 10), (900, 20, 33, 4, 3), (2500, 5, 20, 4, 60), (400, 17, 5, 4, 200), (50, 3, 12, 1, 1)],
)
@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_tiles_find_what_numpy_finds(
    host: HostFamily, monkeypatch: pytest.MonkeyPatch, n: int, m: int, dim: int, veclen: int, k: int, order: str
) -> None:
    """Also with distances in several parts, with queries that probe only some lists, and with one that probes none."""
    from docs.examples.ivf_flat import TiledScanner, lists, tiles

    rng = np.random.default_rng(n)
    case = make_case(rng, n, m, dim, "float", pass_rate=0.5 if host.linked["filter_name"] == "bitset" else None)
    norm = host.linked["post_lambda_name"] == "compose"
    names = {name: host.linked[name] for name in ("metric_name", "post_lambda_name")}
    with numpy_for_cupy(lists, tiles):
        scan = TiledScanner(host)  # type: ignore[arg-type]
        held = lists.Lists.of_host(case.vectors, case.ids, case.labels, case.n_lists, veclen)
        probes = np.stack([rng.permutation(case.n_lists) for _ in range(m)]).astype(np.uint32)
        options = names | {"compute_norm": norm, "order": order, "allowed": words(case.mask)}
        for most in (1 << 28, 4 * held.longest_row(case.n_lists)):
            monkeypatch.setattr(tiles, "_DISTANCES", most)
            found = scan(held, case.queries, probes, k, **options)
            check(found, case, k, **names, compute_norm=norm, order=order)
        probes = np.ascontiguousarray(probes[:, :4])
        probes[0, 1], probes[1] = NO_LIST, NO_LIST
        distances, ids = scan(held, case.queries, probes, k, **options)
    for query in range(m):
        part, its_ids = part_of(case, query, probes[query])
        numbers = {int(each): place for place, each in enumerate(its_ids)} | {-1: -1}
        row = np.array([[numbers[int(each)] for each in ids[query]]])
        check((distances[query : query + 1], row), part, k, **names, compute_norm=norm, order=order)


@pytest.mark.slow
@pytest.mark.parametrize("n_lists", [1, 31, 33, 1024, 1025, 2500])
def test_pairs_are_sorted_by_list(host: HostFamily, n_lists: int) -> None:
    """Each tile finds the list that it belongs to, whichever of 32 entries it looks at."""
    from docs.examples.ivf_flat import TiledScanner, lists, tiles

    rng = np.random.default_rng(n_lists)
    sizes = rng.integers(0, 3, n_lists) * rng.integers(0, 700, n_lists)
    probes = rng.integers(0, n_lists, (300, 7)).astype(np.uint32)
    probes[rng.random(probes.shape) < 0.1] = NO_LIST
    with numpy_for_cupy(lists, tiles):
        first = lists._first_groups(sizes)
        held = lists.Lists(np.empty(0, np.float32), np.empty(0, np.int64), sizes.astype(np.uint32), first, 4, 4)
        scan = TiledScanner(host)  # type: ignore[arg-type]
        offsets, lengths, pairs, begins, tile_begins = scan._sorted(None, held, probes)
    slots = np.where(probes == NO_LIST, 0, -(-sizes // 32)[np.where(probes == NO_LIST, 0, probes)] * 32)
    np.testing.assert_array_equal(lengths, slots.sum(axis=1))
    np.testing.assert_array_equal(offsets, slots.cumsum(axis=1) - slots)
    counts = np.bincount(probes[probes != NO_LIST], minlength=n_lists)
    np.testing.assert_array_equal(begins, np.concatenate([[0], counts.cumsum()]))
    tile_counts = -(-counts // 16) * -(-sizes // 512)
    np.testing.assert_array_equal(tile_begins, np.concatenate([[0], tile_counts.cumsum()]))
    for each in range(n_lists):
        own = np.sort(pairs[begins[each] : begins[each + 1]])
        np.testing.assert_array_equal(own, np.flatnonzero(probes.ravel() == each))
    total = int(tile_begins[-1])
    found = host.find_lists(tile_begins, total)
    np.testing.assert_array_equal(found, np.repeat(np.arange(n_lists), tile_counts))


@pytest.mark.slow
@pytest.mark.parametrize(("n_lists", "n_probes"), [(9, 4), (300, 13), (1000, 200)])
@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_the_nearest_centres_are_found_by_a_product(host: HostFamily, n_lists: int, n_probes: int, order: str) -> None:
    coarse = pytest.importorskip("docs.examples.ivf_flat.coarse", exc_type=ImportError)
    rng = np.random.default_rng(n_lists)
    centres = rng.standard_normal((n_lists, 8)).astype(np.float32)
    centres[3] = 0
    queries = rng.standard_normal((21, 8)).astype(np.float32)
    queries[5, 2] = np.nan
    euclidean = host.linked["metric_name"] == "euclidean"
    norm = host.linked["post_lambda_name"] == "compose"
    with numpy_for_cupy(coarse):
        found = coarse.Coarse(centres, host)(
            queries, n_probes, host.linked["metric_name"], compute_norm=norm, order=order
        )
    distances = ((queries[:, None] - centres) ** 2).sum(axis=2) if euclidean else -(queries @ centres.T)
    if norm:
        lengths = np.sqrt((centres**2).sum(axis=1))
        distances = distances / np.where(lengths > 0, lengths, 1)
    assert (found[5] == NO_LIST).all()
    sign = 1 if order == "ascending" else -1
    best = np.sort(sign * distances, axis=1)[:, :n_probes]
    for query in (*range(5), *range(6, 21)):
        assert len(set(found[query].tolist())) == n_probes
        np.testing.assert_allclose(sign * distances[query, found[query]], best[query], atol=1e-4)
