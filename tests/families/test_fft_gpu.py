"""The family ``fft`` on a GPU, against NumPy in float64; what is allowed is derived in ``fft_reference``."""

import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from docs.examples import fft as front
from jitlto.check.compare import choose_cover
from jitlto.runtime.family import KernelFamily
from tests.support.fft_reference import (
    DTYPES,
    SIZES,
    TRANSFORMS,
    Array,
    bound,
    check,
    errors,
    exact,
    make_rows,
    norms,
    transformed,
    typical,
)

pytestmark = pytest.mark.gpu

_BATCH = 1000
_GUARD = 64  # elements behind an output that must not be written


@pytest.fixture(scope="module", autouse=True)
def _linked_ahead(fft: KernelFamily) -> None:
    """All kernels that the tests use, linked into the cache at once: tests then wait for no link."""
    configurations = list(fft.configurations())
    plain = [c for c in configurations if c["load"] == c["store"] == "identity"]
    covering = [configurations[place] for place in choose_cover(configurations, 2)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda c: fft.plan(**c).link(), plain + covering))  # type: ignore[arg-type]


def _rng(*what: object) -> np.random.Generator:
    """Fresh numbers for each test, and the same ones when it is run again."""
    return np.random.default_rng(zlib.crc32(repr(what).encode()))


def _input(rng: np.random.Generator, size: int, batch: int, dtype: str, kind: str) -> Array:
    return make_rows(rng, batch, size // 2 + 1 if kind == "c2r" else size, dtype, real=kind == "r2c")


def _run(plan: front.Plan, rows: Array) -> Array:
    """Transform rows; the output is poisoned first, and what lies behind it must stay as it is."""
    import cupy as cp

    count = int(np.prod(plan.output_shape))
    memory = cp.full(count + _GUARD, np.nan, plan.output_dtype)
    output = memory[:count].reshape(plan.output_shape)
    plan(cp.asarray(rows), output)
    assert bool(cp.isnan(memory[count:]).all()), "wrote behind the output"
    return cp.asnumpy(output)


def _allowed(size: int, dtype: str, kind: str, products: int = 0) -> float:
    """The kernel's error and NumPy's."""
    return bound(size, dtype, kind, products) + bound(size, "float64", kind, products)


@pytest.mark.parametrize("dtype", DTYPES.values())
@pytest.mark.parametrize("size", SIZES)
def test_every_transform_agrees_with_numpy(fft: KernelFamily, size: int, dtype: str) -> None:
    for kind, direction in TRANSFORMS:
        rng = _rng(size, dtype, kind, direction)
        rows = _input(rng, size, _BATCH, dtype, kind)
        expected = transformed(exact(rows, real=kind == "r2c"), size, kind, direction)
        whole = _run(front.plan(size, _BATCH, dtype, kind, direction, family=fft), rows)
        result = exact(whole, real=kind == "c2r")
        what = f"{kind} {direction} of {size} in {dtype}"
        check(result, expected, norms(expected), _allowed(size, dtype, kind), dtype, what)
        if dtype != "float16":
            relative = float(np.sqrt((errors(result, expected) ** 2).sum() / (norms(expected) ** 2).sum()))
            assert relative <= typical(size, dtype), f"{what}: {relative:.3g}, typical is {typical(size, dtype):.3g}"
        for batch in (1, 3):
            few = _run(front.plan(size, batch, dtype, kind, direction, family=fft), rows[:batch])
            np.testing.assert_array_equal(few, whole[:batch], f"{what}: a row depends on how many there are")


def _shipped(rng: np.random.Generator, name: str, length: int, computed: str) -> tuple[Any, Array, int]:
    """A callback's parameter, the factor of each element that it stands for, and how many elements are in memory."""
    if name == "scale":
        factor = rng.uniform(0.5, 2.0)
        return factor, np.full(length, np.dtype(computed).type(factor), np.float64), length
    if name == "window":
        window = np.hanning(length + 2)[1:-1].astype(computed)
        return window, window.astype(np.float64), length
    if name in ("pad", "crop"):
        stored = max(1, length * 2 // 3)
        return stored, (np.arange(length) < stored).astype(np.float64), stored
    return None, np.ones(length), length


def test_the_shipped_callbacks_do_what_they_say(fft: KernelFamily) -> None:
    """Of all kernels so many that every two parameter values occur together."""
    configurations = list(fft.configurations())
    for place in choose_cover(configurations, 2):
        chosen = configurations[place]
        size, kind, direction = int(chosen["size"]), chosen["kind"], chosen["direction"]
        dtype, load, store = DTYPES[chosen["data_type"]], chosen["load"], chosen["store"]
        computed = "float64" if dtype == "float64" else "float32"
        rng, batch = _rng(sorted(chosen.items())), 77
        before, after = (size // 2 + 1 if kind == one else size for one in ("c2r", "r2c"))
        load_info, load_factors, stored = _shipped(rng, load, before, computed)
        store_info, store_factors, kept = _shipped(rng, store, after, computed)

        rows = make_rows(rng, batch, stored, dtype, real=kind == "r2c")
        plan = front.plan(size, batch, dtype, kind, direction, load=load, store=store, family=fft,
                          load_info=load_info, store_info=store_info)  # fmt: skip
        result = exact(_run(plan, rows), real=kind == "c2r")

        padded = np.zeros((batch, before), exact(rows, real=kind == "r2c").dtype)
        padded[:, :stored] = exact(rows, real=kind == "r2c")
        plain = transformed(padded * load_factors, size, kind, direction)
        expected = (plain * store_factors)[:, :kept]
        products = (load in ("scale", "window")) + (store in ("scale", "window"))
        scale = store_factors.max() * norms(plain)
        # An error of an element read counts like that in the norm of what is read, and no window makes that larger.
        check(result, expected, scale, _allowed(size, dtype, kind, products), dtype, str(chosen))


_OWN_LOAD = """
// Every row backwards, conjugated.
__device__ float2 fft_load(const float2* data, unsigned row, unsigned index, unsigned length, void*) {
  const float2 x = data[(unsigned long long)row * length + (length - 1 - index)];
  return make_float2(x.x, -x.y);
}
"""
_OWN_STORE = """
// The power spectrum, into the array that `info` points to; the output itself is not written.
__device__ void fft_store(float2*, unsigned row, unsigned index, unsigned length, float2 value, void* info) {
  static_cast<float*>(info)[(unsigned long long)row * length + index] = value.x * value.x + value.y * value.y;
}
"""


@pytest.mark.parametrize("link_mode", ["lto", "ptx"])
@pytest.mark.parametrize("size", [2, 64, 512, 8192])
def test_a_callers_own_callbacks_read_and_write(fft: KernelFamily, size: int, link_mode: str) -> None:
    import cupy as cp

    rows = make_rows(_rng(size, link_mode), 100, size, "float32", real=False)
    power = cp.full((100, size), np.nan, np.float32)
    plan = front.plan(size, 100, load=_OWN_LOAD, store=_OWN_STORE, store_info=power, family=fft, link_mode=link_mode)
    untouched = _run(plan, rows)
    assert np.isnan(untouched).all()
    spectra = np.fft.fft(rows[:, ::-1].conj().astype("complex128"))
    # |x + e|**2 is off by 2 |x| |e| + |e|**2 at most, and by three roundings.
    error = _allowed(size, "float32", "c2c") * norms(spectra)[:, None]
    magnitude = np.abs(spectra)
    allowed = 2 * magnitude * error + error**2 + 4 * 2.0**-24 * (magnitude + error) ** 2
    assert (np.abs(cp.asnumpy(power) - magnitude**2) <= allowed).all()


def test_both_link_modes_are_within_the_bound(fft: KernelFamily) -> None:
    for kind, direction in TRANSFORMS:
        rows = _input(_rng(kind, direction), 1024, 50, "float32", kind)
        expected = transformed(exact(rows, real=kind == "r2c"), 1024, kind, direction)
        plan = front.plan(1024, 50, "float32", kind, direction, family=fft, link_mode="ptx")
        result = exact(_run(plan, rows), real=kind == "c2r")
        check(result, expected, norms(expected), _allowed(1024, "float32", kind), "float32", f"{kind} {direction} ptx")
