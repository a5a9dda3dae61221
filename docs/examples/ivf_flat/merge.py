"""Merging the sorted results that several blocks have found for the same query."""

from __future__ import annotations

from typing import Any

import cupy

# A result's rank is its place in its own row plus the number of results in the other rows that come before it. Ties are
# broken so that ranks are unique: a vector comes before an empty place, which is infinitely far too, and an earlier row
# before a later one.
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
    """Return the ``k`` best results of each query.

    Args:
        distances: A float32 CuPy array of shape (n, rows × k): for each query, rows of ``k`` distances without NaN,
            each sorted with the best first.
        neighbours: The ids, int64, of the same shape; -1 for an empty place. Empty places are at the end of each row.
        k: The number of results.
        order: ``ascending`` or ``descending``.

    Returns:
        Distances (float32) and ids (int64), both of shape (n, k).
    """
    shape = (len(distances), k)
    best, found = cupy.empty(shape, cupy.float32), cupy.empty(shape, cupy.int64)
    rows = distances.shape[1] // k
    _RANKED(distances, neighbours, rows, k, order == "ascending", best, found, size=distances.size)
    return best, found
