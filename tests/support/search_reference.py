"""A NumPy reference of the `search` family: cases, the answer in float64, and a check with a proven tolerance.

Imports nothing of jitlto. Parameter values are the C++ names that the family's matrices use.

How far a kernel may be from the float64 distance
-------------------------------------------------
Let u = 2**-24 be the unit roundoff of float, v = 2**-53 that of double, w the one of the output type, and t_i
the exact contributions of the `dim` pairs of elements, whose inputs float and `__half` both hold exactly.

* A euclidean contribution is a float difference, rounded once, that is squared, rounded once: three factors
  (1 + d) with ``|d| <= u``. A product is rounded once. Fused multiply-add only leaves roundings out. So at most
  three roundings in u.
* However a sum of `dim` terms is ordered, each term passes through at most `dim - 1` roundings, in w: adding to
  zero is exact.
* k roundings of size e change a term by at most g(k, e) = k e / (1 - k e), relative to the term.

The error is therefore at most ``((1 + g(3, u)) (1 + g(dim, w)) - 1) * sum |t_i|``. The reference itself makes at
most ``dim + 2`` roundings in v. Underflow adds no more than the smallest subnormal float, 2**-149, a term. `check`
assumes that nothing overflows.

A kernel that picks row i and not the best row b found ``computed(i) <= computed(b)``; so the true distance of i may
be above that of b by no more than the two bounds together. Rows with equal elements are computed by equal steps, so
among those the smallest index is required exactly.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "__half": np.dtype(np.float16),
    "uint32_t": np.dtype(np.uint32),
    "int64_t": np.dtype(np.int64),
}
DISTANCES: Final = ("euclidean", "inner_product")

_FLOAT_ROUNDOFF: Final = 2.0**-24
_DOUBLE_ROUNDOFF: Final = 2.0**-53
_SMALLEST_FLOAT: Final = 2.0**-149


@dataclass(frozen=True)
class Case:
    """The input of one search.

    `dataset` is n × dim and `queries` m × dim, C-contiguous and of one type; `mask` has one bool a row, True lets the
    row through, and None means no filter.
    """

    dataset: NDArray[Any]
    queries: NDArray[Any]
    mask: NDArray[np.bool_] | None = None

    def __str__(self) -> str:
        """The shape in one line, for messages."""
        n, dim = self.dataset.shape
        passing = n if self.mask is None else int(self.mask.sum())
        return f"n={n} ({passing} pass) m={len(self.queries)} dim={dim} {self.dataset.dtype}"

    def filter_words(self) -> NDArray[np.uint32] | None:
        """What `filter_bitset` reads; None without a filter."""
        return None if self.mask is None else pack_bitset(self.mask)


def make_case(
    rng: np.random.Generator,
    n: int,
    m: int,
    dim: int,
    data_type: str = "float",
    *,
    pass_rate: float | None = None,
    ties: bool = False,
) -> Case:
    """Draw a case.

    `pass_rate` is the share of rows that the filter lets through: 0.0 filters out all, 1.0 none, None makes no filter.
    `ties` draws small integers, whose distances are exact in float, and repeats rows: many rows are equally close.
    """
    dtype = DTYPES[data_type]

    def draw(rows: int) -> NDArray[Any]:
        values = rng.integers(-2, 3, (rows, dim)) if ties else rng.standard_normal((rows, dim))
        return values.astype(dtype)

    dataset = draw(n)
    if ties and n > 1:
        copies = rng.integers(0, n, n // 2)
        dataset[copies] = dataset[rng.integers(0, n, n // 2)]
    mask = None if pass_rate is None else rng.random(n) < pass_rate
    return Case(dataset, draw(m), mask)


def pack_bitset(mask: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """The ceil(n / 32) words that `filter_bitset` reads: row r is bit r % 32, from the lowest, of word r // 32."""
    padded = np.zeros(-(-len(mask) // 32) * 32, np.bool_)
    padded[: len(mask)] = mask
    return np.packbits(padded, bitorder="little").view("<u4").astype(np.uint32)


def no_index(idx_type: str) -> int:
    """The index that says "no row": -1, or the maximum of an unsigned type."""
    dtype = DTYPES[idx_type]
    return int(np.iinfo(dtype).max) if dtype.kind == "u" else -1


def reference(
    dataset: NDArray[Any],
    queries: NDArray[Any],
    distance_name: str,
    mask: NDArray[np.bool_] | None = None,
    out_type: str = "double",
    idx_type: str = "int64_t",
) -> tuple[NDArray[Any], NDArray[Any]]:
    """For each query the index and the distance of the closest row, computed in float64.

    Equally close rows: the first. No row (none at all, all filtered out, no distance that is a number): `no_index` and
    infinity. Distances are rounded to `out_type` at the end.
    """
    indices = np.full(len(queries), no_index(idx_type), DTYPES[idx_type])
    distances = np.full(len(queries), np.inf, DTYPES[out_type])
    rows = dataset.astype(np.float64)
    for q, query in enumerate(queries.astype(np.float64)):
        exact = _terms(rows, query, distance_name).sum(axis=1)
        eligible = _eligible(exact, mask)
        if eligible.size:
            indices[q] = eligible[np.argmin(exact[eligible])]
            distances[q] = exact[indices[q]]
    return indices, distances


def error_bound(magnitudes: NDArray[np.float64], dim: int, out_type: str) -> NDArray[np.float64]:
    """How far a kernel's distance may be from the float64 one; `magnitudes` is the sum of \\|t_i\\| of each row.

    The module's docstring derives it.
    """
    terms = _growth(3, _FLOAT_ROUNDOFF)
    total = _growth(dim, _DOUBLE_ROUNDOFF if out_type == "double" else _FLOAT_ROUNDOFF)
    relative = terms + total + terms * total + _growth(dim + 2, _DOUBLE_ROUNDOFF)
    return relative * magnitudes + dim * _SMALLEST_FLOAT


def check(
    indices: NDArray[Any],
    distances: NDArray[Any],
    case: Case,
    distance_name: str,
    out_type: str,
    idx_type: str,
) -> None:
    """Raise AssertionError if this is not an answer that a correct kernel may give for the case.

    The dtypes and shapes, the row (it exists, passes the filter, is the closest within the bounds, is the first of the
    rows equal to it) and its distance are checked for every query; the message names the first that is wrong.
    """
    n, dim = case.dataset.shape
    what = f"{case} {distance_name} {out_type} {idx_type}"
    for name, array, type_name in (("indices", indices, idx_type), ("distances", distances, out_type)):
        if array.dtype != DTYPES[type_name] or array.shape != (len(case.queries),):
            raise AssertionError(
                f"{name}: {array.dtype}{array.shape}, not {DTYPES[type_name]}({len(case.queries)},) [{what}]"
            )
    none = no_index(idx_type)
    rows = case.dataset.astype(np.float64)
    for q, query in enumerate(case.queries.astype(np.float64)):
        index, distance = int(indices[q]), float(distances[q])
        got = f"query {q}: got row {index} at {distance!r}"
        terms = _terms(rows, query, distance_name)
        exact = terms.sum(axis=1)
        eligible = _eligible(exact, case.mask)
        if not eligible.size:
            if index != none or distance != np.inf:
                raise AssertionError(f"{got}; no row is eligible: expected {none} at inf [{what}]")
            continue
        best = int(eligible[np.argmin(exact[eligible])])
        expected = f"expected row {best} at {float(exact[best])!r} [{what}]"
        if index == none:
            raise AssertionError(f"{got}, which means no row; {expected}")
        if not 0 <= index < n:
            raise AssertionError(f"{got}, which does not exist; {expected}")
        if case.mask is not None and not case.mask[index]:
            raise AssertionError(f"{got}, which the filter does not let through; {expected}")
        bounds = error_bound(np.abs(terms[[index, best]]).sum(axis=1), dim, out_type)
        if not abs(distance - exact[index]) <= bounds[0]:
            raise AssertionError(
                f"{got}, whose distance is {float(exact[index])!r} ± {float(bounds[0]):.3g}; {expected}"
            )
        if not exact[index] - exact[best] <= bounds.sum():
            raise AssertionError(f"{got}, further than the best by more than {float(bounds.sum()):.3g}; {expected}")
        twins = eligible[(case.dataset[eligible] == case.dataset[index]).all(axis=1)]
        if int(twins[0]) != index:
            raise AssertionError(f"{got}, but row {int(twins[0])} is equal to it and comes first; {expected}")


def _growth(count: int, unit: float) -> float:
    """The most that `count` roundings of relative size `unit` change a value, relative to it."""
    return count * unit / (1.0 - count * unit)


def _terms(rows: NDArray[np.float64], query: NDArray[np.float64], distance_name: str) -> NDArray[np.float64]:
    """The contribution of each element of each row."""
    if distance_name == "euclidean":
        return np.asarray((rows - query) ** 2, np.float64)
    if distance_name == "inner_product":
        return np.asarray(-rows * query, np.float64)
    raise ValueError(f"distance_name {distance_name!r} is none of {', '.join(DISTANCES)}")


def _eligible(exact: NDArray[np.float64], mask: NDArray[np.bool_] | None) -> NDArray[np.intp]:
    """The rows that may be chosen, in order: those let through whose distance is a number."""
    numbers = ~np.isnan(exact)
    return np.flatnonzero(numbers if mask is None else numbers & mask)
