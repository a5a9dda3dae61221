"""Balanced hierarchical k-means on the GPU: the centres of an index.

The vectors are first divided into about √m coarse clusters, and each of these into its share of the m lists; a few
passes over all centres then move vectors across the borders of coarse clusters. So most iterations compare a vector
with about √m centres instead of m, and centres spread as vectors do. Lists that come out short are moved to where
vectors are many, as RAPIDS cuVS does it: a search reads whole lists, and takes the longer the less even they are.
"""

from typing import Any

import cupy
import numpy

from docs.examples.ivf_flat.scan import NO_LIST
from docs.examples.ivf_flat.steps import Steps

#: A list shorter than this share of the average is moved.
_SHORT = 0.5
#: Passes over all centres.
_PASSES = 5


def kmeans(rows: Any, n_lists: int, steps: Steps, *, iterations: int = 20, seed: int = 0) -> tuple[Any, Any]:
    """Return the centres of clusters, and their squared norms.

    Args:
        rows: A float32 CuPy array of shape (n, dim). Rows with what is not finite are left out.
        n_lists: The number of centres, at most that of finite rows.
        steps: The kernels.
        iterations: The number of times that the centres are moved at each of the two levels.
        seed: Seed of the random choices. The same seed gives the same centres on the same kind of GPU.

    Returns:
        Float32 CuPy arrays of shapes (n_lists, dim) and (n_lists,).

    Raises:
        ValueError: If fewer than ``n_lists`` rows are finite.
    """
    random = numpy.random.default_rng(seed)
    rows = _finite(rows, n_lists, steps)
    shares, rows = _divided(rows, n_lists, steps, iterations, random)
    centres = cupy.empty((n_lists, rows.shape[1]), cupy.float32)
    begin = at = 0
    for count, share in shares:
        own, target = rows[begin : begin + count], centres[at : at + share]
        _iterate(own, target, _drawn(own, target, steps, random), steps, iterations, random)
        begin, at = begin + count, at + share
    _, squares = steps.gather(centres, _numbers(numpy.arange(n_lists)))
    _iterate(rows, centres, squares, steps, _PASSES, random)
    return centres, squares


def _finite(rows: Any, n_lists: int, steps: Steps) -> Any:
    """Return the rows of which all components are finite."""
    dim = rows.shape[1]
    # Products with zeros are zeros, or else no numbers.
    labels = steps.label(rows, cupy.zeros((1, dim), cupy.float32), cupy.zeros(1, cupy.float32), otherwise=NO_LIST)
    ordered = steps.sort(labels, 1)
    count = int(ordered.sizes()[0])
    if count < n_lists:
        raise ValueError(f"{count} of the vectors are finite, fewer than {n_lists} lists")
    return rows if count == len(rows) else steps.gather(rows, ordered.order[:count])[0]


def _divided(
    rows: Any, n_lists: int, steps: Steps, iterations: int, random: numpy.random.Generator
) -> tuple[list[tuple[int, int]], Any]:
    """Divide rows into coarse clusters.

    Returns:
        For each cluster, the number of its rows and that of the lists they are to be divided into; the rows, cluster by
        cluster.
    """
    n_clusters = max(1, round(n_lists**0.5))
    centres = cupy.empty((n_clusters, rows.shape[1]), cupy.float32)
    squares = _drawn(rows, centres, steps, random)
    _iterate(rows, centres, squares, steps, iterations, random)
    # A row whose distances overflow belongs to the first cluster.
    ordered = steps.sort(steps.label(rows, centres, squares, otherwise=0), n_clusters)
    sizes = ordered.sizes()
    shares = _shares(sizes, n_lists)
    return list(zip(sizes.tolist(), shares.tolist(), strict=True)), steps.gather(rows, ordered.order)[0]


def _shares(sizes: Any, n_lists: int) -> Any:
    """Return how many lists each cluster is divided into: in proportion to its rows, and at most as many.

    Args:
        sizes: The rows of each cluster, int64, in sum at least ``n_lists``.
        n_lists: The sum of the shares.
    """
    shares = numpy.minimum(numpy.maximum(1, sizes * n_lists // sizes.sum()), sizes)
    while shares.sum() < n_lists:
        shares[numpy.where(shares < sizes, sizes / numpy.maximum(shares, 1), 0).argmax()] += 1
    while shares.sum() > n_lists:
        shares[numpy.where(shares > 1, sizes / numpy.maximum(shares, 1), numpy.inf).argmin()] -= 1
    return shares


def _drawn(rows: Any, centres: Any, steps: Steps, random: numpy.random.Generator) -> Any:
    """Choose rows as centres, and return their squared norms."""
    if not len(centres):
        return None
    chosen = _numbers(numpy.sort(random.choice(len(rows), len(centres), replace=False)))
    return steps.gather(rows, chosen, out=centres)[1]


def _iterate(
    rows: Any, centres: Any, squares: Any, steps: Steps, iterations: int, random: numpy.random.Generator
) -> None:
    """Move centres to the means of the rows nearest to them, and those of short lists to where rows are many."""
    if not len(centres):
        return
    short = -(-int(_SHORT * len(rows)) // len(centres))
    for iteration in range(iterations):
        labels = steps.label(rows, centres, squares, otherwise=NO_LIST)
        ordered = steps.sort(labels, len(centres))
        # The last time only centres without rows are moved, so that all others are means.
        least = max(1, short) if iteration + 1 < iterations else 1
        seed = int(random.integers(1 << 32))
        steps.average(rows, ordered, labels, centres, squares, least=least, seed=seed)


def _numbers(numbers: Any) -> Any:
    return cupy.asarray(numbers.astype(numpy.uint32))
