"""The transforms of the family ``fft`` in NumPy, and how far a kernel may be from them.

How far a kernel may be from the exact transform
------------------------------------------------
All in the 2-norm of a row, relative to that of the exact result, to first order, with u the unit roundoff of the type
that is computed with: 2**-24 for float, and for half, which is only stored; 2**-53 for double. The steps are unitary up
to a factor, so their errors add (N. J. Higham, «Accuracy and Stability of Numerical Algorithms», chapter 24).

* One level of radix 2, a + w b and a - w b, the latter as twice a minus the former: at most 5 u, and the error of w,
  which is 1 u if the compiler rounded it. So 6 u for each level of the first pass.
* A root that a polynomial or sincospi computes is within 4 u, the square of one within 11 u, and at most half of the
  factors of a later pass are squares. A product with a root that the compiler rounded adds 4 u, and there are two at
  most. So less than 16 u on average, and 21 u for each level of a later pass.
* Separating the transforms of even and odd elements, or joining them: an addition, and one such level with a root of
  4 u that was turned (4 u): less than 15 u. The map from half the points to the half spectrum adds a factor sqrt(2) to
  what was there before.
* A callback that multiplies: u.

With F = log2 of the points of a thread, 3 to 5, and L levels this is at most ``6 F + 21 (L - F)`` u, for real
transforms ``sqrt(2)`` times that plus 15 u: for 8192 complex points 198 u, 1.2e-5 in float. A result stored as half is
rounded once more: by 2**-11 of itself, or by 2**-25 where it is subnormal. NumPy's own transform in float64 is taken to
be as good as ours in double.

Roundings are not all at their worst and not all in one direction: typical errors are some fifty times smaller, and
:func:`typical` is what they stay below.
"""

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
    first = min(levels, 3 if points == 64 else 4 if points < 512 else 5)
    error = 6 * first + 21 * (levels - first)
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
