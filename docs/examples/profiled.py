"""A nearest-neighbour search to profile: a kernel of the shipped family ``search``, launched three times.

    python docs/examples/profiled.py kernels.fragdb

With ``--too-small`` the array of distances lacks its second half, for compute-sanitizer to find where it is exceeded.
"""

import argparse

import cupy as cp

import jitlto

ROWS, QUERIES, DIM = 100_000, 512, 64
CONFIGURATION = {
    "data_type": "float", "out_type": "float", "idx_type": "uint32_t", "optimized_name": "optimized", "veclen": 4,
    "distance_name": "euclidean", "filter_name": "filter_none",
}  # fmt: skip


def main() -> None:
    """Search, and check the first result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database")
    parser.add_argument("--too-small", action="store_true")
    options = parser.parse_args()
    cp.cuda.set_allocator(None)  # an allocation for each array: a pool would hide what lies beyond its end
    dataset = cp.random.random((ROWS, DIM), dtype=cp.float32)
    queries = dataset[:QUERIES] + cp.float32(1e-3)
    indices = cp.empty(QUERIES, cp.uint32)
    distances = cp.empty(QUERIES // 2 if options.too_small else QUERIES, cp.float32)
    kernel = jitlto.load("search", options.database).launcher(**CONFIGURATION)
    for _ in range(3):
        kernel(
            cp.cuda.get_current_stream(), QUERIES, 256, dataset, queries, indices, distances, ROWS, QUERIES, DIM, None
        )
    cp.cuda.Device().synchronize()
    print("right" if bool((indices == cp.arange(QUERIES)).all()) else "wrong", kernel)


if __name__ == "__main__":
    main()
