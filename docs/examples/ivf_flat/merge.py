"""Rows of sorted results that several blocks have found for a query, made one."""

from __future__ import annotations

from typing import Any

import cupy

# A result's rank is its place in its own row, and how many of each other row come before it. Of equal ones a vector is
# before an empty place, which is infinitely far too, and then that of the earlier row, so that no two have one rank.
_RANKED = cupy.ElementwiseKernel(
    "raw float32 distances, raw int64 neighbours, int32 rows, int32 k, bool ascending",
    "raw float32 best, raw int64 found",
    """
    const long long query = i / (rows * k);
    const int own = i / k % rows;
    const float distance = distances[i];
    const bool empty = neighbours[i] < 0;
    int rank = i % k;
    for (int row = 0; row < rows && rank < k; ++row) {
      if (row == own) { continue; }
      int low = 0;
      for (int high = k; low < high;) {
        const int middle = (low + high) / 2;
        const long long place = (query * rows + row) * k + middle;
        const float other = distances[place];
        const bool other_empty = neighbours[place] < 0;
        const bool first = other_empty == empty ? row < own : empty;
        const bool before = (ascending ? other < distance : other > distance) || (other == distance && first);
        if (before) { low = middle + 1; } else { high = middle; }
      }
      rank += low;
    }
    if (rank < k) {
      best[query * k + rank] = distance;
      found[query * k + rank] = neighbours[i];
    }
    """,
    "ivf_flat_merge",
)


def merge(distances: Any, neighbours: Any, k: int, order: str) -> tuple[Any, Any]:
    """The ``k`` best of each query.

    Parameters
    ----------
    distances : cupy.ndarray of float32, shape (n, rows × k)
        For each query rows of ``k`` distances, each the best first; no NaN.
    neighbours : cupy.ndarray of int64, shape (n, rows × k)
        Ids; -1 for an empty place, of which a row has none before a vector.
    k : int
    order : str
        ``ascending`` or ``descending``.

    Returns
    -------
    distances : cupy.ndarray of float32, shape (n, k)
    neighbours : cupy.ndarray of int64, shape (n, k)
    """
    shape = (len(distances), k)
    best, found = cupy.empty(shape, cupy.float32), cupy.empty(shape, cupy.int64)
    rows = distances.shape[1] // k
    _RANKED(distances, neighbours, rows, k, order == "ascending", best, found, size=distances.size)
    return best, found
