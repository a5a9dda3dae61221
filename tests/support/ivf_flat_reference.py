"""A NumPy reference of the family ``ivf_flat``: cases, distances in float64, and a check with a proven tolerance.

Imports nothing of jitlto. Parameter values are the C++ names that the family's matrices use.

How far a kernel's distance may be from the float64 one
-------------------------------------------------------
Let u = 2**-24 be the unit roundoff of float and g(k) = k u / (1 - k u), which bounds the effect of k roundings on a
term, relative to the term.

* Sums of bytes are integers and exact; float holds them after one rounding. Terms of float and ``__half`` pass through
  at most 3 roundings of their own and ``dim`` of the sum: ``g(dim + 3) * sum |t_i|``.
* A norm is the root of such a sum, which halves its relative error: the two norms, their roots, their product and the
  division add at most ``g(dim + 3) + g(8)`` relative to the quotient.
* `post_lambda` never decreases, so its value lies between those at the two ends of the interval; it rounds twice.

A kernel that returns a vector and leaves out another found the first one no worse; so the first may truly be the worse
one by no more than both bounds together. NumPy's own errors, in float64, are covered by the bounds being rounded up.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "float": np.dtype(np.float32),
    "__half": np.dtype(np.float16),
    "uint8_t": np.dtype(np.uint8),
    "int8_t": np.dtype(np.int8),
}
_ROUNDOFF: Final = 2.0**-24
_SMALLEST_FLOAT: Final = 2.0**-149


@dataclass(frozen=True)
class Case:
    """Vectors in lists, and queries that scan all lists.

    `labels` has each vector's list, one of `n_lists`; `ids` are neither in order nor without gaps. `mask` has one bool
    for each id up to the greatest, True lets the vector through; None means no filter.
    """

    vectors: NDArray[Any]
    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    n_lists: int
    queries: NDArray[Any]
    mask: NDArray[np.bool_] | None

    def __str__(self) -> str:
        n, dim = self.vectors.shape
        passing = n if self.mask is None else int(self.mask[self.ids].sum())
        return f"n={n} ({passing} pass) lists={self.n_lists} m={len(self.queries)} dim={dim} {self.vectors.dtype}"


def make_case(
    rng: np.random.Generator,
    n: int,
    m: int,
    dim: int,
    data_type: str,
    *,
    n_lists: int = 9,
    pass_rate: float | None = None,
    opposite: bool = False,
) -> Case:
    """Draw a case of which some lists are empty, and the others of any length.

    `pass_rate` is the share of vectors that the filter lets through; None makes no filter. `opposite` draws vectors
    without negative components and queries without positive ones: no inner product is positive.
    """
    dtype = DTYPES[data_type]

    def draw(rows: int) -> NDArray[Any]:
        if dtype.kind == "f":
            return rng.standard_normal((rows, dim)).astype(dtype)
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, (rows, dim), dtype, endpoint=True)

    vectors, queries = draw(n), draw(m)
    if opposite:
        lowest = -127 if dtype.kind == "i" else None  # of which int8 has the negative
        vectors, queries = np.abs(np.clip(vectors, lowest, None)), -np.abs(np.clip(queries, lowest, None))
    vectors[: n // 10] = 0  # a zero vector has no direction
    used = rng.choice(n_lists, max(1, n_lists - 3), replace=False)
    labels = used[np.minimum(rng.integers(0, len(used), n), rng.integers(0, len(used), n))]
    ids = rng.choice(2 * n + 1, n, replace=False).astype(np.int64)
    mask = None if pass_rate is None else rng.random(2 * n + 1) < pass_rate
    return Case(vectors, ids, labels.astype(np.int64), n_lists, queries, mask)


def distances(
    vectors: NDArray[Any], query: NDArray[Any], metric_name: str, *, compute_norm: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The distances of all vectors from a query, before `post_lambda`, and how far a kernel's may be from them."""
    rows, one = vectors.astype(np.float64), query.astype(np.float64)
    dim = len(one)
    terms = (rows - one) ** 2 if metric_name == "euclidean" else -rows * one
    exact = terms.sum(axis=1)
    sums = _growth(1 if vectors.dtype.kind in "iu" else dim + 3)
    bounds = sums * np.abs(terms).sum(axis=1)
    if compute_norm:
        norms = np.sqrt((rows**2).sum(axis=1)) * np.sqrt((one**2).sum())
        norms[norms == 0] = 1
        exact, bounds = exact / norms, bounds / norms
        bounds = bounds + (np.abs(exact) + bounds) * (sums + _growth(8))
    return exact, 1.001 * bounds + dim * _SMALLEST_FLOAT


def post_lambda(name: str, distance: NDArray[np.float64]) -> NDArray[np.float64]:
    """What is written for a distance; a root of less than zero is that of zero here, for the ends of intervals."""
    if name == "sqrt":
        return np.asarray(np.sqrt(np.maximum(distance, 0)))
    return 1 + distance if name == "compose" else distance


def check(
    found: tuple[NDArray[Any], NDArray[Any]],
    case: Case,
    k: int,
    *,
    metric_name: str,
    post_lambda_name: str,
    compute_norm: bool,
    order: str,
) -> None:
    """Raise AssertionError if these are not the distances and neighbours that a correct kernel may give.

    For every query: as many as there are, none twice, none that the filter keeps out, each at its distance, in order,
    and none left out that is better.
    """
    got_distances, got_ids = found
    what = f"[{case} k={k} {metric_name} {post_lambda_name} compute_norm={compute_norm} {order}]"
    shape = (len(case.queries), k)
    if got_distances.shape != shape or got_ids.shape != shape:
        raise AssertionError(f"shapes {got_distances.shape} and {got_ids.shape}, not {shape} {what}")
    sign = 1.0 if order == "ascending" else -1.0
    rows = np.full(2 * len(case.ids) + 1, -1)
    rows[case.ids] = np.arange(len(case.ids))
    passes = np.ones(len(case.ids), bool) if case.mask is None else case.mask[case.ids]
    for q, query in enumerate(case.queries):
        where = f"query {q}: got {got_ids[q][:8]} at {got_distances[q][:8]} {what}"
        exact, bounds = distances(case.vectors, query, metric_name, compute_norm=compute_norm)
        count = min(k, int(passes.sum()))
        if (got_ids[q, count:] != -1).any() or (got_distances[q, count:] != sign * np.inf).any():
            raise AssertionError(f"there are {count} vectors only, but after them: {got_ids[q, count:][:8]}; {where}")
        ids = got_ids[q, :count]
        if ((ids < 0) | (ids >= len(rows))).any() or (rows[ids] < 0).any():
            raise AssertionError(f"ids that do not exist; {where}")
        if len(set(ids.tolist())) != count:
            raise AssertionError(f"ids twice; {where}")
        chosen = rows[ids]
        if not passes[chosen].all():
            raise AssertionError(f"ids that the filter does not let through; {where}")
        values = got_distances[q, :count].astype(np.float64)
        low = post_lambda(post_lambda_name, exact[chosen] - bounds[chosen])
        high = post_lambda(post_lambda_name, exact[chosen] + bounds[chosen])
        slack = 4 * _ROUNDOFF * np.maximum(np.maximum(np.abs(low), np.abs(high)), post_lambda_name == "compose")
        wrong = ~((low - slack <= values) & (values <= high + slack))
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise AssertionError(f"place {i}: {values[i]!r} is not in [{low[i]!r}, {high[i]!r}]; {where}")
        if (np.diff(sign * values) < 0).any():
            raise AssertionError(f"not in order; {where}")
        left = passes.copy()
        left[chosen] = False
        if count and left.any():
            worst = (sign * exact - bounds)[chosen].max()
            best = (sign * exact + bounds)[left].min()
            if worst > best:
                i = int(np.flatnonzero(left)[(sign * exact + bounds)[left].argmin()])
                raise AssertionError(f"id {case.ids[i]} at {exact[i]!r} is better and was left out; {where}")


def words(mask: NDArray[np.bool_] | None) -> NDArray[np.uint32] | None:
    """The words of the filter ``bitset`` that lets through what a mask does."""
    if mask is None:
        return None
    padded = np.zeros(-(-len(mask) // 32) * 32, bool)
    padded[: len(mask)] = mask
    return np.packbits(padded, bitorder="little").view("<u4")


def recall(found: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """The share of the true neighbours that were found; rows of ids."""
    hits = sum(len(set(a.tolist()) & set(b.tolist())) for a, b in zip(found, truth, strict=True))
    return hits / truth.size


def _growth(count: int) -> float:
    """The most that `count` roundings change a value, relative to it."""
    return count * _ROUNDOFF / (1.0 - count * _ROUNDOFF)
