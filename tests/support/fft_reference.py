"""The transforms of the family ``fft`` in NumPy, and how far a kernel may be from them.

How far a kernel may be from the exact transform
------------------------------------------------
All in the 2-norm of a row, relative to that of the exact result, to first order, with u the unit roundoff of the type
that is computed with: 2**-24 for float, and for half, which is only stored; 2**-53 for double. The steps are unitary up
to a factor, so their errors add (N. J. Higham, «Accuracy and Stability of Numerical Algorithms», chapter 24).

* One level of additions, of which radix R has log2 R: u.
* A complex product: sqrt(2) gamma_2, less than 3 u. With a root that the compiler rounded: 1 u more. Radix 8 and 16
  have one such layer between their levels: 4 u.
* A root that sincospi computes is within 2 units in the last place in both parts: 4 u. A twiddle factor is the product
  of four of them at most: 4 * 4 u + 3 * 3 u; then it is multiplied: 3 u. So 28 u for each pass but the first.
* Separating the transforms of even and odd elements, or joining them: a root of 4 u turned (4 u) and multiplied (3 u),
  and three additions: less than 15 u. The map from half the points to the half spectrum adds a factor sqrt(2) to what
  was there before.
* A callback that multiplies: u.

With L = log2 of the number of complex points and P passes this is at most ``L + 4 P + 28 (P - 1)`` u, for real
transforms ``sqrt(2)`` times that plus 15 u: for 8192 complex points 113 u, 6.7e-6 in float. A result stored as half is
rounded once more: by 2**-11 of itself, or by 2**-25 where it is subnormal. NumPy's own transform in float64 is taken to
be as good as ours in double.

Roundings are not all at their worst and not all in one direction: typical errors are some forty times smaller, and
:func:`typical` is what they stay below.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: The C++ name of a stored type → NumPy's, of the type that is computed with.
DTYPES: Final = {"float": "float32", "double": "float64", "__half": "float16"}
#: Kind and direction of every transform.
TRANSFORMS: Final = (("c2c", "forward"), ("c2c", "inverse"), ("r2c", "forward"), ("c2r", "inverse"))
SIZES: Final = tuple(2**n for n in range(1, 14))


def unit(dtype: str) -> float:
    """The unit roundoff of the type that is computed with."""
    return 2.0**-53 if dtype == "float64" else 2.0**-24


def bound(size: int, dtype: str, kind: str, products: int = 0) -> float:
    """How large the relative error of a row can be, before it is stored; ``products``: callbacks that multiply."""
    points = size if kind == "c2c" else size // 2
    levels = points.bit_length() - 1
    passes = -(-levels // 4)
    error = levels + 4 * passes + 28 * max(0, passes - 1)
    if kind != "c2c":
        error = np.sqrt(2) * error + 15
    return float((error + products) * unit(dtype) * 1.01)  # 1.01: the terms of higher order


def typical(size: int, dtype: str) -> float:
    """What the relative error over many rows of random numbers stays below, before it is stored."""
    return 2 * np.sqrt(np.log2(size)) * unit(dtype)


def make_rows(rng: np.random.Generator, batch: int, length: int, dtype: str, *, real: bool) -> Array:
    """Normally distributed rows as the kernel reads them: half precision complex numbers as pairs."""
    shape = (batch, length) if real else (batch, length, 2)
    values = rng.standard_normal(shape).astype(dtype)
    return values if real or dtype == "float16" else values.view(f"complex{128 if dtype == 'float64' else 64}")[..., 0]


def exact(values: Array, *, real: bool) -> Array:
    """What a kernel has read or written, as float64 or complex128."""
    if real or np.iscomplexobj(values):
        return values.astype("float64" if real else "complex128")
    pairs = values.astype("float64")
    return np.asarray(pairs[..., 0] + 1j * pairs[..., 1])


def transformed(values: Array, size: int, kind: str, direction: str) -> Array:
    """The transform by NumPy, in float64, divided by the size in neither direction."""
    if kind == "r2c":
        return np.fft.rfft(values, size)
    if kind == "c2r":
        return np.fft.irfft(values, size, norm="forward")
    if direction == "forward":
        return np.fft.fft(values, size)
    return np.fft.ifft(values, size, norm="forward")


def errors(result: Array, expected: Array) -> Array:
    """The 2-norm of each row's error."""
    return np.asarray(np.sqrt((np.abs(result - expected) ** 2).sum(-1)))


def norms(values: Array) -> Array:
    """The 2-norm of each row."""
    return np.asarray(np.sqrt((np.abs(values) ** 2).sum(-1)))


def check(result: Array, expected: Array, scale: Array, relative: float, dtype: str, what: str) -> None:
    """Assert that every row is within its bound.

    Parameters
    ----------
    result, expected : ndarray
        Rows as float64 or complex128.
    scale : ndarray
        For each row, the norm to which ``relative`` is relative.
    relative : float
        The bound of the kernel's error, NumPy's included.
    """
    allowed = relative * scale
    if dtype == "float16":
        parts = (2 if np.iscomplexobj(expected) else 1) * expected.shape[-1]
        allowed = allowed + 2.0**-11 * (1 + relative) * norms(expected) + 2.0**-25 * np.sqrt(parts)
    found = errors(result, expected)
    assert np.isfinite(found).all(), f"{what}: {np.count_nonzero(~np.isfinite(found))} rows are not finite"
    worst = int(np.argmax(found / np.maximum(allowed, 1e-300)))
    where = int(np.argmax(np.abs(result[worst] - expected[worst])))
    assert (found <= allowed).all(), (
        f"{what}: row {worst} is off by {found[worst]:.3g}, allowed {allowed[worst]:.3g}; most so element {where}: "
        f"{result[worst, where]} instead of {expected[worst, where]}; {np.count_nonzero(found > allowed)} rows are off"
    )
