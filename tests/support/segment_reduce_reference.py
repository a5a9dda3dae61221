"""Reductions of segments in NumPy, and how far a kernel of the family ``segment_reduce`` may be from them.

Kernels add in float, in an order of their own. Whatever the order, a sum of n numbers is off by at most
``(n - 1) u / (1 - (n - 1) u)`` times the sum of their magnitudes, with u = 2**-24 (N. J. Higham, «Accuracy and
Stability of Numerical Algorithms», section 4.2); the division by n is two roundings at most. The result is then rounded
to the stored type: by 2**-11 of itself for half, by 2**-25 where it is subnormal there, and by 2**-8 for bfloat16. A
maximum is exact. NumPy's own sums are in float64.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

REDUCTIONS: Final = ("sum", "mean", "max")
#: The C++ name of a stored type → NumPy's or PyTorch's.
DTYPES: Final = {"float": "float32", "__half": "float16", "__nv_bfloat16": "bfloat16"}
#: The C++ name of a stored type → the unit roundoff of what is stored.
ROUNDOFFS: Final = {"float": 0.0, "__half": 2.0**-11, "__nv_bfloat16": 2.0**-8}
#: The C++ name of a type of offsets → NumPy's.
INDICES: Final = {"int32_t": "int32", "int64_t": "int64"}


def stored(values: Array, data_type: str) -> Array:
    """Numbers as a kernel reads them, rounded to nearest; bfloat16, which NumPy lacks, as its bits."""
    if data_type != "__nv_bfloat16":
        return values.astype("float16" if data_type == "__half" else "float32")
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def exact(numbers: Array) -> Array:
    """What a kernel has read or written, in float64."""
    if numbers.dtype == np.uint16:
        numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers.astype(np.float64)


def offsets_of(lengths: Array) -> Array:
    """The borders of rows of these lengths, in int64."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def reduced(values: Array, offsets: Array, reduce: str) -> Array:
    """The reduction of float64 values (n × width), with PyTorch's results for empty rows."""
    lengths = np.diff(offsets)
    result = np.full((len(lengths), values.shape[1]), {"sum": 0.0, "mean": np.nan, "max": -np.inf}[reduce])
    if (filled := lengths > 0).any():
        function = np.maximum if reduce == "max" else np.add
        result[filled] = function.reduceat(values, offsets[:-1][filled])
    if reduce == "mean":
        result[filled] /= lengths[filled, None]
    return result


def check(
    result: Array, values: Array, offsets: Array, reduce: str, data_type: str, what: str = "", roundings: int = 0
) -> None:
    """Assert that every number of a result, in float64, is within its bound.

    ``roundings``: how often each element has been rounded in float before it is added.
    """
    expected = reduced(values, offsets, reduce)
    if reduce == "max":
        np.testing.assert_array_equal(result, expected, what)
        return
    lengths = np.diff(offsets)[:, None]
    rounded = (np.maximum(lengths - 1, 0) + 2 * (reduce == "mean") + roundings) * 2.0**-24
    computed = rounded / (1 - rounded) * reduced(np.abs(values), offsets, reduce)
    unit = ROUNDOFFS[data_type]
    allowed = computed * (1 + unit) + unit * np.abs(expected) + (2.0**-25 if data_type == "__half" else 0)
    wrong = ~(np.abs(result - expected) <= allowed) & ~(np.isnan(result) & np.isnan(expected))
    where = tuple(map(int, np.argwhere(wrong)[0])) if wrong.any() else ()
    assert not where, (
        f"{what}: {np.count_nonzero(wrong)} numbers are off; row {where[0]} of {lengths[where[0], 0]} elements, column "
        f"{where[1]}: {result[where]} instead of {expected[where]}, allowed {allowed[where]:.3g}"
    )
