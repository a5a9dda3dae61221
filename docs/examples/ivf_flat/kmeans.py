"""k-means on the GPU: the centres of an index, and the nearest centre of each vector."""

from __future__ import annotations

from typing import Any

import cupy
import numpy

#: Limit in bytes of a temporary matrix: distances of vectors to centres, or vectors converted to float.
_TEMPORARY = 256 << 20


def nearest(vectors: Any, centres: Any) -> Any:
    """Return the index of the nearest centre of each vector, by Euclidean distance.

    Args:
        vectors: An array of shape (n, dim), of any type that the index supports, in host or device memory.
        centres: A float32 CuPy array of shape (m, dim).

    Returns:
        An int64 CuPy array of shape (n,).
    """
    labels = cupy.empty(len(vectors), cupy.int64)
    # |v − c|² without |v|², which is the same for all centres.
    squares = (centres * centres).sum(axis=1)
    for part in _parts(len(vectors), max(centres.shape)):
        rows = cupy.asarray(vectors[part]).astype(cupy.float32)
        labels[part] = (squares - 2 * (rows @ centres.T)).argmin(axis=1)
    return labels


def kmeans(sample: Any, n_lists: int, *, iterations: int = 20, seed: int = 0) -> Any:
    """Return the centres of clusters, by Lloyd's algorithm from randomly chosen vectors.

    A centre that is not the nearest to any vector is replaced by a randomly chosen vector.

    Args:
        sample: A CuPy array of shape (n, dim), with ``n`` at least ``n_lists``. All values must be finite: others would
            spoil every centre.
        n_lists: The number of centres.
        iterations: The number of times that the centres are moved.
        seed: Seed of the random choices.

    Returns:
        A float32 CuPy array of shape (n_lists, dim).
    """
    random = numpy.random.default_rng(seed)
    centres = sample[cupy.asarray(random.choice(len(sample), n_lists, replace=False))].astype(cupy.float32)
    lists = cupy.arange(n_lists)
    for _ in range(iterations):
        labels = nearest(sample, centres)
        sums = cupy.zeros_like(centres)
        for part in _parts(len(sample), max(centres.shape)):
            # A product with a 0/1 matrix sums each cluster's vectors in a fixed order, which atomics would not.
            members = (labels[part, None] == lists).astype(cupy.float32)
            sums += members.T @ sample[part].astype(cupy.float32)
        counts = cupy.bincount(labels, minlength=n_lists)[:, None]
        anew = sample[cupy.asarray(random.integers(0, len(sample), n_lists))].astype(cupy.float32)
        centres = cupy.where(counts > 0, sums / cupy.maximum(counts, 1), anew).astype(cupy.float32)
    return centres


def _parts(n: int, width: int) -> list[slice]:
    """Return slices of n rows, so that a float matrix of a slice × width stays within ``_TEMPORARY`` bytes."""
    rows = max(1, _TEMPORARY // (4 * width))
    return [slice(begin, min(begin + rows, n)) for begin in range(0, n, rows)]
