"""k-means on the GPU: the centres of an index, and which of them a vector is nearest to."""

from __future__ import annotations

from typing import Any

import cupy
import numpy

#: Bytes of a temporary matrix of vectors × centres, or of as many vectors in float.
_TEMPORARY = 256 << 20


def nearest(vectors: Any, centres: Any) -> Any:
    """The number of the nearest centre for each vector, by Euclidean distance.

    Parameters
    ----------
    vectors : array of shape (n, dim)
        Of any of the index's types, in host or device memory.
    centres : cupy.ndarray of float32, shape (m, dim)

    Returns
    -------
    cupy.ndarray of int64, shape (n,)
    """
    labels = cupy.empty(len(vectors), cupy.int64)
    # |v − c|² without |v|², which is the same for all centres.
    squares = (centres * centres).sum(axis=1)
    for part in _parts(len(vectors), max(centres.shape)):
        rows = cupy.asarray(vectors[part]).astype(cupy.float32)
        labels[part] = (squares - 2 * (rows @ centres.T)).argmin(axis=1)
    return labels


def kmeans(sample: Any, n_lists: int, *, iterations: int = 20, seed: int = 0) -> Any:
    """Centres of clusters, by Lloyd's algorithm from randomly chosen vectors.

    A centre that no vector is nearest to begins anew at a randomly chosen vector.

    Parameters
    ----------
    sample : cupy.ndarray of shape (n, dim)
        ``n`` is at least ``n_lists``. Finite: what is not would spoil every centre.
    n_lists : int
        How many centres.
    iterations : int
        How often centres are moved.
    seed : int
        Of the random choices.

    Returns
    -------
    cupy.ndarray of float32, shape (n_lists, dim)
    """
    random = numpy.random.default_rng(seed)
    centres = sample[cupy.asarray(random.choice(len(sample), n_lists, replace=False))].astype(cupy.float32)
    lists = cupy.arange(n_lists)
    for _ in range(iterations):
        labels = nearest(sample, centres)
        sums = cupy.zeros_like(centres)
        for part in _parts(len(sample), max(centres.shape)):
            # A product with ones and zeros adds up each cluster's vectors, always in the same order, as atomics do not.
            members = (labels[part, None] == lists).astype(cupy.float32)
            sums += members.T @ sample[part].astype(cupy.float32)
        counts = cupy.bincount(labels, minlength=n_lists)[:, None]
        anew = sample[cupy.asarray(random.integers(0, len(sample), n_lists))].astype(cupy.float32)
        centres = cupy.where(counts > 0, sums / cupy.maximum(counts, 1), anew).astype(cupy.float32)
    return centres


def _parts(n: int, width: int) -> list[slice]:
    """Slices of n rows, such that a float matrix of a slice × width is of bearable size."""
    rows = max(1, _TEMPORARY // (4 * width))
    return [slice(begin, min(begin + rows, n)) for begin in range(0, n, rows)]
