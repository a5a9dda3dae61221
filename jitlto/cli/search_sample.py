"""Kernels of the shipped family ``search``, launched with random numbers and compared with NumPy. Needs CuPy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from jitlto.plan.plan import Plan
from jitlto.runtime.family import KernelFamily

Array: TypeAlias = npt.NDArray[Any]

CONFIGURATIONS: tuple[dict[str, str], ...] = (
    {"data_type": "float", "out_type": "float", "idx_type": "uint32_t", "optimized_name": "optimized", "veclen": "4",
     "distance_name": "euclidean", "filter_name": "filter_none"},
    {"data_type": "float", "out_type": "double", "idx_type": "int64_t", "optimized_name": "standard", "veclen": "8",
     "distance_name": "inner_product", "filter_name": "filter_bitset"},
    {"data_type": "__half", "out_type": "float", "idx_type": "uint32_t", "optimized_name": "optimized", "veclen": "4",
     "distance_name": "inner_product", "filter_name": "filter_none"},
    {"data_type": "__half", "out_type": "float", "idx_type": "int64_t", "optimized_name": "standard", "veclen": "16",
     "distance_name": "euclidean", "filter_name": "filter_bitset"},
)  # fmt: skip
#: The numbers of rows and queries, and the dimension of both.
ROWS, QUERIES, DIM = 20_000, 64, 96
_TYPES = {
    "float": np.float32,
    "__half": np.float16,
    "double": np.float64,
    "uint32_t": np.uint32,
    "int64_t": np.int64,
}


def launch_and_compare(search: KernelFamily, plan: Plan) -> tuple[float, bool]:
    """Launch a kernel on the current device; return its time in milliseconds, and whether its results are correct."""
    import cupy as cp

    configuration = plan.configuration
    rng = np.random.default_rng()
    dataset, queries = (
        rng.standard_normal((count, DIM)).astype(_TYPES[configuration["data_type"]]) for count in (ROWS, QUERIES)
    )
    allowed = np.ones(ROWS, bool)
    words = None
    if configuration["filter_name"] == "filter_bitset":
        allowed = rng.random(ROWS) < 0.5
        words = cp.asarray(np.packbits(np.pad(allowed, (0, -ROWS % 32)), bitorder="little").view(np.uint32))
    indices = cp.full(QUERIES, 123, _TYPES[configuration["idx_type"]])
    distances = cp.full(QUERIES, np.nan, _TYPES[configuration["out_type"]])
    launcher = search.load(plan)
    grid, block = (QUERIES, 256) if configuration["optimized_name"] == "optimized" else (-(-QUERIES // 128), 128)
    device_dataset, device_queries = cp.asarray(dataset), cp.asarray(queries)
    stream = cp.cuda.get_current_stream()
    begin, end = cp.cuda.Event(), cp.cuda.Event()
    begin.record()
    launcher(stream.ptr, grid, block, device_dataset, device_queries, indices, distances, ROWS, QUERIES, DIM, words)
    end.record()
    end.synchronize()
    found, distance = (cp.asnumpy(indices), cp.asnumpy(distances)), configuration["distance_name"]
    return cp.cuda.get_elapsed_time(begin, end), _agrees(*found, dataset, queries, allowed, distance)


def _agrees(
    indices: Array, distances: Array, dataset: Array, queries: Array, allowed: Array, distance_name: str
) -> bool:
    """Compare with float64: each row found must be as near as the nearest, up to rounding in single precision."""
    rows, wanted = dataset.astype(np.float64), queries.astype(np.float64)
    products = wanted @ rows.T
    if distance_name == "euclidean":
        exact = (wanted**2).sum(1)[:, None] - 2 * products + (rows**2).sum(1)
    else:
        exact = -products
    exact[:, ~allowed] = np.inf
    found = exact[np.arange(len(indices)), indices.astype(np.int64)]
    # DIM roundings, each of at most one unit in the last place of a sum with this magnitude.
    scale = DIM * np.finfo(np.float32).eps * (np.abs(wanted) @ np.abs(rows).T).max() * 2
    return bool(np.all(np.abs(found - distances) <= scale) and np.all(found <= exact.min(1) + scale))
