"""The family ``ivf_flat_batch`` on a GPU: many queries at once, against NumPy in float64 and against few queries."""

from typing import Any

import numpy as np
import pytest

from jitlto.check.compare import choose_cover
from jitlto.runtime.family import KernelFamily
from tests.families.test_ivf_flat_gpu import DIMENSIONS, METRICS, has_real_results, index_data, ivf_flat, link_ahead
from tests.support.ivf_flat_reference import DTYPES, Case, check, make_case, words

pytestmark = pytest.mark.gpu
__all__ = ["ivf_flat"]  # the fixture


def covering(family: KernelFamily, strength: int = 2) -> list[dict[str, str]]:
    """Kernels of both steps, each with a dimension, in which all pairs of values occur."""
    scans = [each for each in family.configurations() if each["entry"] == "tiled_scan"]
    selects = [each for each in family.configurations() if each["entry"] == "select_probed"]
    every = [
        scan | select | {"dim": str(dim), "entry": ""}
        for scan in scans
        for select in selects
        if has_real_results(scan | select)
        for dim in DIMENSIONS
    ]
    return [every[place] for place in choose_cover(every, strength)]


def scan_tiles(family: KernelFamily, case: Case, k: int, configuration: dict[str, str]) -> Any:
    """Scan all lists of a case in tiles."""
    import cupy

    from docs.examples.ivf_flat import Lists, TiledScanner

    lists = Lists.of_host(case.vectors, case.ids, case.labels, case.n_lists, int(configuration["veclen"]))
    probes = cupy.asarray(np.tile(np.arange(case.n_lists, dtype=np.uint32)[::-1], (len(case.queries), 1)))
    distances, neighbours = TiledScanner(family)(
        lists, cupy.asarray(case.queries), probes, k, metric_name=configuration["metric_name"],
        post_lambda_name=configuration["post_lambda_name"], compute_norm=configuration["compute_norm"] == "true",
        order=configuration["order"], allowed=None if case.mask is None else cupy.asarray(words(case.mask)),
    )  # fmt: skip
    return cupy.asnumpy(distances), cupy.asnumpy(neighbours)


def verify(family: KernelFamily, rng: np.random.Generator, configuration: dict[str, str], dim: int, n: int) -> None:
    """The kernels of a configuration on a fresh random case of ``n`` vectors."""
    capacity = int(configuration["capacity"])
    k = int(rng.integers(capacity // 2 + 1, capacity + 1))
    case = make_case(
        rng,
        n,
        int(rng.integers(1, 40)),
        dim,
        configuration["data_type"],
        pass_rate=float(rng.choice([0.0, 0.1, 0.5, 1.0])) if configuration["filter_name"] == "bitset" else None,
        opposite=configuration["post_lambda_name"] == "sqrt" and configuration["metric_name"] == "inner_product",
    )
    check(
        scan_tiles(family, case, k, configuration),
        case,
        k,
        metric_name=configuration["metric_name"],
        post_lambda_name=configuration["post_lambda_name"],
        compute_norm=configuration["compute_norm"] == "true",
        order=configuration["order"],
    )


def test_long_vectors_are_scanned_in_tiles_too(ivf_flat_batch: KernelFamily) -> None:
    from docs.examples.ivf_flat import Lists, TiledScanner

    dim, wanted = 1536, {"data_type": "float", "veclen": "4"}
    lists = Lists.of_host(np.zeros((1, dim), np.float32), np.zeros(1, np.int64), np.zeros(1, np.int64), 1)
    if not TiledScanner(ivf_flat_batch).suits(lists, 100, 1, 10):
        pytest.skip("the device has too little shared memory for 16 such vectors")
    configuration = next(each for each in covering(ivf_flat_batch) if wanted.items() <= each.items())
    verify(ivf_flat_batch, np.random.default_rng(), configuration, dim, 500)


def test_all_pairs_of_variants_and_dimensions_agree_with_numpy(ivf_flat_batch: KernelFamily) -> None:
    rng = np.random.default_rng()
    chosen = covering(ivf_flat_batch)
    for entry in ("tiled_scan", "select_probed"):
        link_ahead(ivf_flat_batch, [each for each in ivf_flat_batch.configurations() if each["entry"] == entry])
    failures = []
    for configuration in chosen:
        try:
            verify(ivf_flat_batch, rng, configuration, int(configuration["dim"]), int(rng.integers(200, 1500)))
        except AssertionError as error:
            failures.append(f"{configuration}: {error}")
    print(f"{len(chosen)} kernels")
    assert not failures, f"{len(failures)} of {len(chosen)}:\n" + "\n".join(failures[:10])


@pytest.mark.parametrize("data_type", DTYPES)
@pytest.mark.parametrize("metric", METRICS)
def test_many_queries_find_what_each_finds_alone(ivf_flat: KernelFamily, data_type: str, metric: str) -> None:
    """Through products of matrices and tiles, in the lists that were chosen for them."""
    import cupy

    from docs.examples.ivf_flat import Index

    rng = np.random.default_rng()
    dataset, queries = index_data(rng, 20_000, 1200, 48, data_type)
    index = Index.build(dataset, 100, kernels=ivf_flat)
    mask = rng.random(len(dataset)) < 0.5
    for order, allowed, k in (("ascending", None, 10), ("descending", None, 1), ("ascending", mask, 40)):
        chosen = {"n_probes": 12, "metric": metric, "order": order, "allowed": allowed}
        many = index.search(queries, k, **chosen)
        for begin in (0, 700):
            few = index.search(queries[begin : begin + 20], k, **chosen)
            rows = slice(begin, begin + 20)
            same = cupy.asnumpy(many[1][rows] == few[1])
            # A centre that is almost as near as another may be chosen in its place.
            assert same.mean() > 0.97, f"{metric} {data_type} {order}: {same.mean():.3f}"
            np.testing.assert_allclose(
                cupy.asnumpy(many[0][rows])[same], cupy.asnumpy(few[0])[same], rtol=1e-5, atol=1e-5
            )
