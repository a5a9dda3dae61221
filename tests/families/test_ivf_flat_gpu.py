"""The family ``ivf_flat`` and its index on a GPU, against NumPy in float64."""

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitlto.check.compare import choose_cover
from jitlto.runtime.family import KernelFamily
from tests.support.ivf_flat_reference import DTYPES, Case, check, make_case, recall, words

pytestmark = pytest.mark.gpu

DIMENSIONS = (1, 7, 32, 100, 128, 768)
METRICS = {
    "sqeuclidean": ("euclidean", "identity", False),
    "euclidean": ("euclidean", "sqrt", False),
    "inner_product": ("inner_product", "identity", False),
    "cosine": ("inner_product", "compose", True),
}


@pytest.fixture(scope="module")
def ivf_flat(ivf_flat_batch: KernelFamily) -> KernelFamily:
    """The family ``ivf_flat`` of the database that an index needs."""
    return KernelFamily("ivf_flat", ivf_flat_batch.database)


def scan(family: KernelFamily, case: Case, k: int, configuration: dict[str, str], blocks: int | None = None) -> Any:
    """Scan all lists of a case with one kernel; checks that it is the one of the configuration."""
    import cupy

    from docs.examples.ivf_flat import Lists, Scanner, Steps, capacity_for

    assert str(capacity_for(k)) == configuration["capacity"]
    dim, steps = case.vectors.shape[1], Steps(KernelFamily("ivf_flat_batch", family.database))
    lists = Lists.empty(case.n_lists, dim, case.vectors.dtype, int(configuration["veclen"]))
    half = len(case.ids) // 2  # in two parts, so that lists are extended that hold something
    for part, move in ((slice(half), np.asarray), (slice(half, None), cupy.asarray)):
        ids, labels = cupy.asarray(case.ids[part]), cupy.asarray(case.labels[part].astype(np.uint32))
        lists = lists.extended(move(case.vectors[part]), ids, labels, steps)
    assert len(lists) == len(case.ids)
    probes = cupy.asarray(np.tile(np.arange(case.n_lists, dtype=np.uint32)[::-1], (len(case.queries), 1)))
    distances, neighbours = Scanner(family, steps)(
        lists,
        cupy.asarray(case.queries),
        probes,
        k,
        metric_name=configuration["metric_name"],
        post_lambda_name=configuration["post_lambda_name"],
        compute_norm=configuration["compute_norm"] == "true",
        order=configuration["order"],
        allowed=None if case.mask is None else cupy.asarray(words(case.mask)),
        blocks_per_query=blocks,
    )
    return cupy.asnumpy(distances), cupy.asnumpy(neighbours)


def verify(
    family: KernelFamily, rng: np.random.Generator, configuration: dict[str, str], dim: int, n: int | None = None
) -> None:
    """One kernel on a fresh random case; the number of vectors is random unless given."""
    capacity = int(configuration["capacity"])
    k = int(rng.integers(capacity // 2 + 1, capacity + 1)) if capacity else int(rng.integers(257, 300))
    case = make_case(
        rng,
        int(rng.integers(200, 900)) if n is None else n,
        int(rng.integers(1, 6)),
        dim,
        configuration["data_type"],
        pass_rate=float(rng.choice([0.0, 0.1, 0.5, 1.0])) if configuration["filter_name"] == "bitset" else None,
        opposite=configuration["post_lambda_name"] == "sqrt" and configuration["metric_name"] == "inner_product",
    )
    check(
        scan(family, case, k, configuration, blocks=int(rng.integers(1, 12))),
        case,
        k,
        metric_name=configuration["metric_name"],
        post_lambda_name=configuration["post_lambda_name"],
        compute_norm=configuration["compute_norm"] == "true",
        order=configuration["order"],
    )


def has_real_results(configuration: dict[str, str]) -> bool:
    """Whether there is data whose distances are no roots of negative numbers."""
    roots = configuration["post_lambda_name"] == "sqrt" and configuration["metric_name"] == "inner_product"
    return not (roots and configuration["data_type"] == "uint8_t")


def covering(family: KernelFamily) -> list[dict[str, str]]:
    """Configurations, each with a dimension, in which all pairs of values occur."""
    every = [
        configuration | {"dim": str(dim)}
        for configuration in family.configurations()
        if has_real_results(configuration)
        for dim in DIMENSIONS
    ]
    return [every[place] for place in choose_cover(every, 2)]


def test_all_pairs_of_variants_and_dimensions_agree_with_numpy(ivf_flat: KernelFamily) -> None:
    rng = np.random.default_rng()
    chosen = covering(ivf_flat)
    kernels = [{name: value for name, value in each.items() if name != "dim"} for each in chosen]
    link_ahead(ivf_flat, kernels)
    failures = []
    for configuration, kernel in zip(chosen, kernels, strict=True):
        try:
            verify(ivf_flat, rng, kernel, int(configuration["dim"]))
        except AssertionError as error:
            failures.append(f"{configuration}: {error}")
    print(f"{len(chosen)} kernels")
    assert not failures, f"{len(failures)} of {len(chosen)}:\n" + "\n".join(failures[:10])


def link_ahead(family: KernelFamily, configurations: list[dict[str, str]]) -> None:
    """Link on all cores what launching would link one by one."""
    from jitlto.cuda import device

    arch = device.architecture()
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda configuration: family.plan(arch=arch, **configuration).link(), configurations))


def index_data(rng: np.random.Generator, n: int, m: int, dim: int, data_type: str) -> tuple[Any, Any]:
    """Clustered vectors in host memory, and queries from the same clusters."""
    dtype = DTYPES[data_type]
    centres = rng.standard_normal((max(1, n // 100), dim), np.float32)

    def draw(count: int) -> Any:
        rows = centres[rng.integers(0, len(centres), count)] + 0.4 * rng.standard_normal((count, dim), np.float32)
        if dtype.kind == "f":
            return rows.astype(dtype)
        middle = 128 if data_type == "uint8_t" else 0
        return np.clip(np.rint(rows * 30 + middle), np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)

    return draw(n), draw(m)


@pytest.mark.parametrize("data_type", DTYPES)
def test_an_index_that_probes_all_lists_is_exact(ivf_flat: KernelFamily, data_type: str) -> None:
    import cupy

    from docs.examples.ivf_flat import Index

    rng = np.random.default_rng()
    for dim in DIMENSIONS:
        dataset, queries = index_data(rng, 1500, 7, dim, data_type)
        index = Index.build(dataset[:1000], 13, kernels=ivf_flat)
        index.add(cupy.asarray(dataset[1000:]))
        assert len(index) == 1500
        for metric, (metric_name, post, norm) in METRICS.items():
            for mask in (None, rng.random(1500) < 0.3, np.zeros(1500, bool)):
                case = Case(dataset, np.arange(1500), np.zeros(1500, np.int64), 13, queries, mask)
                for k in (1, 10, 300):
                    found = index.search(queries, k, n_probes=13, metric=metric, allowed=mask)
                    check(
                        (cupy.asnumpy(found[0]), cupy.asnumpy(found[1])),
                        case,
                        k,
                        metric_name=metric_name,
                        post_lambda_name=post,
                        compute_norm=norm,
                        order="ascending",
                    )


def test_an_index_can_be_saved_and_loaded(ivf_flat: KernelFamily, tmp_path: Path) -> None:
    from docs.examples.ivf_flat import Index

    dataset, queries = index_data(np.random.default_rng(), 2000, 9, 50, "int8_t")
    index = Index.build(dataset, 20, kernels=ivf_flat)
    index.save(tmp_path / "index.npz")
    again = Index.load(tmp_path / "index.npz", kernels=ivf_flat)
    for one, other in zip(index.search(queries, 10, n_probes=5), again.search(queries, 10, n_probes=5), strict=True):
        assert bool((one == other).all())
    again.add(dataset[:1])
    assert sorted(again.search(dataset[:1], 2, n_probes=20)[1][0].tolist()) == [0, 2000]


@pytest.mark.parametrize("data_type", DTYPES)
def test_recall_at_10_is_095_or_more_on_clustered_vectors(
    ivf_flat: KernelFamily, data_type: str, record_property: Callable[[str, object], None]
) -> None:
    """All metrics, with and without a filter. ``JITLTO_TEST_IVF_FLAT_ROWS`` sets the size; full: 1,000,000."""
    import cupy

    from docs.examples.ivf_flat import Index

    n, dim, k = int(os.environ.get("JITLTO_TEST_IVF_FLAT_ROWS", "20000")), 128, 10
    rng = np.random.default_rng()
    dataset, queries = index_data(rng, n, 200, dim, data_type)
    n_lists = int(n**0.5)
    index = Index.build(dataset, n_lists, kernels=ivf_flat)
    masks = (None, rng.random(n) < 0.5)
    for metric, mask in itertools.product(METRICS, masks):
        exact = exact_neighbours(dataset, queries, k, metric, mask)
        # Large inner products lie in more lists than near vectors, and in most if no component is negative.
        products = (8, 4, 2, 4 / 3) if data_type == "uint8_t" else (8, 4)
        parts = products if metric == "inner_product" else (8,)
        for n_probes in (int(n_lists / part) for part in parts):
            _, neighbours = index.search(queries, k, n_probes=n_probes, metric=metric, allowed=mask)
            value = recall(cupy.asnumpy(neighbours), exact)
            what = f"{metric}, {'half' if mask is not None else 'all'} allowed, {n_probes} of {n_lists} lists"
            record_property(what, value)
            print(f"{data_type} n={n} {what}: recall {value:.4f}")
            if value >= 0.95:
                break
        assert value >= 0.95, what


def exact_neighbours(dataset: Any, queries: Any, k: int, metric: str, mask: Any) -> np.ndarray[Any, Any]:
    """Brute force on the GPU, in float64 and in parts."""
    import cupy

    wanted = cupy.asarray(queries).astype(cupy.float64)
    best: list[Any] = []
    for begin in range(0, len(dataset), 1 << 17):
        rows = cupy.asarray(dataset[begin : begin + (1 << 17)]).astype(cupy.float64)
        distances = -(wanted @ rows.T)
        if metric.endswith("euclidean"):
            distances = (rows**2).sum(axis=1) + 2 * distances
        elif metric == "cosine":
            distances = distances / cupy.sqrt((rows**2).sum(axis=1))
        if mask is not None:
            distances[:, ~cupy.asarray(mask[begin : begin + (1 << 17)])] = cupy.inf
        places = cupy.argsort(distances, axis=1)[:, :k]
        best.append((cupy.take_along_axis(distances, places, axis=1), places + begin))
    distances, ids = (cupy.concatenate(parts, axis=1) for parts in zip(*best, strict=True))
    return np.asarray(cupy.asnumpy(cupy.take_along_axis(ids, cupy.argsort(distances, axis=1)[:, :k], axis=1)))
