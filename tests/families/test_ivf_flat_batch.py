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
