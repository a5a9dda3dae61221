"""Transforms against cuFFT, as CuPy calls it: alone, and between element-wise kernels that do what callbacks do.

All write into arrays that are there, cuFFT's plans are made beforehand, and no side divides by the size. Callbacks:
each row times a window when it is read, and times a factor when it is written; for ``pad``, rows of half the length
are filled up with zeros when they are read.
"""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jitlto.cuda import device
from jitlto.runtime.family import KernelFamily
from tests.benchmarks import svg
from tests.benchmarks.families.databases import BASE, free_memory, small_family
from tests.benchmarks.families.workloads import random_rows
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import device_milliseconds, in_turn, ratio, summaries
from tests.support import fft_reference as reference

_CHECKED = 8  # rows
_NAMES = {"float": "float32", "double": "float64", "__half": "float16"}
#: The kinds of transform, and the direction that each is measured in.
_FORWARD = {"c2c": "forward", "r2c": "forward", "c2r": "inverse"}


@dataclass(frozen=True)
class _Case:
    kind: str
    direction: str
    data_type: str
    size: int
    load: str
    store: str

    def __str__(self) -> str:
        callbacks = "" if self.load == "identity" else f" {self.load}/{self.store}"
        return f"{self.kind} {self.direction} {self.data_type.strip('_')} {self.size}{callbacks}"

    @property
    def configuration(self) -> dict[str, str]:
        return {
            "kind": self.kind, "direction": self.direction, "data_type": self.data_type, "size": str(self.size),
            "load": self.load, "store": self.store,
        }  # fmt: skip


def _cases() -> list[_Case]:
    alone = [
        _Case(kind, direction, data_type, size, "identity", "identity")
        for data_type in _NAMES
        for kind, direction in _FORWARD.items()
        for size in reference.SIZES
    ]
    return [
        *alone,
        _Case("c2c", "inverse", "float", 1024, "identity", "identity"),
        *(_Case("c2c", "forward", "float", size, "window", "scale") for size in reference.SIZES),
        *(_Case("c2c", "forward", data_type, size, "window", "scale")
          for data_type in ("double", "__half") for size in (64, 512, 4096)),
        *(_Case(kind, _FORWARD[kind], "float", size, "window", "scale")
          for kind in ("r2c", "c2r") for size in (64, 512, 4096, 8192)),
        *(_Case("r2c", "forward", "float", size, "pad", "scale") for size in (512, 4096)),
    ]  # fmt: skip


def measure(options: Options) -> Result:
    """All cases."""
    elements = 1 << 16 if options.small else 1 << 28
    cases = _cases()
    rows = []
    with tempfile.TemporaryDirectory(dir=options.work) as directory:
        family = small_family("fft", [case.configuration for case in cases], BASE, Path(directory))
        arch = device.architecture()
        with ThreadPoolExecutor() as pool:  # links, on all cores, what would be linked one by one
            list(pool.map(lambda case: family.plan(arch=arch, **case.configuration).link(), cases))
        for case in cases:
            rows.append(_measure(family, case, elements, options))
            print(rows[-1], flush=True)
            free_memory()
    return {"elements": elements, "transforms": rows}


def _measure(family: KernelFamily, case: _Case, elements: int, options: Options) -> dict[str, Any]:
    import cupy as cp

    from docs.examples import fft as front

    dtype, size = _NAMES[case.data_type], case.size
    batch = max(_CHECKED, elements // size)
    length = size // 2 + 1 if case.kind == "c2r" else size
    stored = size // 2 if case.load == "pad" else length
    factor = 0.75
    window = np.random.default_rng().uniform(0.5, 1.0, length) if case.load == "window" else None
    plan = front.plan(
        size, batch, dtype, case.kind, case.direction, load=case.load, store=case.store, family=family,
        load_info=stored if case.load == "pad" else window, store_info=factor if case.store == "scale" else None,
    )  # fmt: skip
    rows = random_rows(batch, stored, dtype, real=case.kind == "r2c")
    if case.kind == "c2r":  # of a real row these two are real, and cuFFT's result is undefined if they are not
        for end in (rows[:, 0], rows[:, -1]):
            (end[:, 1:] if dtype == "float16" else end.imag)[...] = 0
    ours, theirs = (cp.empty(plan.output_shape, plan.output_dtype) for _ in range(2))
    # A copy, because cuFFT may write over what it makes real rows from.
    cufft = _cufft(case, batch, length, rows.copy(), theirs, window, factor)
    sides: dict[str, Callable[[], object]] = {"jitlto": lambda: plan(rows, ours), "cuFFT": cufft}
    chosen = cp.asarray(np.random.default_rng().choice(batch, _CHECKED, replace=False))
    given = reference.exact(cp.asnumpy(rows[chosen]), real=case.kind == "r2c")
    for name, output in (("jitlto", ours), ("cuFFT", theirs)):
        output.fill(np.nan)
        sides[name]()
        _check(case, given, cp.asnumpy(output[chosen]), window, factor, name)
        assert bool(cp.isfinite(output).all()), f"{name}: a row was not written, or is not finite"
    times = in_turn(sides, options.rounds, device_milliseconds, warm=2)
    return {
        **case.configuration,
        "batch": batch,
        "milliseconds": summaries(times),
        "bytes_in_and_out": int(rows.nbytes + ours.nbytes),
        "cuFFT/jitlto": ratio(times, "cuFFT", "jitlto"),
    }


def _cufft(
    case: _Case, batch: int, length: int, rows: Any, output: Any, window: Any, factor: float
) -> Callable[[], None]:
    """What does the same with cuFFT, and element-wise kernels before and after where there are callbacks."""
    import cupy as cp

    size = case.size
    if case.data_type == "__half":
        given, made = rows.size // batch, output.size // batch
        pairs = {"c2c": "EE", "r2c": "eE", "c2r": "Ee"}[case.kind]  # CuPy's letters for real and complex halves
        lengths = [count // 2 if letter == "E" else count for count, letter in zip((given, made), pairs, strict=True)]
        library = cp.cuda.cufft.XtPlanNd(
            (size,), (lengths[0],), 1, lengths[0], pairs[0], (lengths[1],), 1, lengths[1], pairs[1], batch, "E",
            order="C", last_axis=-1, last_size=size,
        )  # fmt: skip
    else:
        double = case.data_type == "double"
        kinds = {
            "c2c": "Z2Z" if double else "C2C",
            "r2c": "D2Z" if double else "R2C",
            "c2r": "Z2D" if double else "C2R",
        }
        library = cp.cuda.cufft.Plan1d(size, getattr(cp.cuda.cufft, f"CUFFT_{kinds[case.kind]}"), batch)
    direction = cp.cuda.cufft.CUFFT_FORWARD if case.direction == "forward" else cp.cuda.cufft.CUFFT_INVERSE
    if case.load == "identity":
        return lambda: library.fft(rows, output, direction)
    real = np.float64 if case.data_type == "double" else np.float16 if case.data_type == "__half" else np.float32
    scale = real(factor)
    if case.load == "pad":
        padded = cp.zeros((batch, length), rows.dtype)

        def fill_up() -> None:
            padded[:, : rows.shape[1]] = rows
            library.fft(padded, output, direction)
            cp.multiply(output, scale, out=output)

        return fill_up
    windowed = cp.empty_like(rows)
    # Pairs of __half as rows of twice the length: of two dimensions CuPy's kernel is much quicker than of three.
    parts = 2 if case.data_type == "__half" else 1
    factors = cp.asarray(np.repeat(window.astype(real), parts))
    flat, flat_windowed = (array.reshape(batch, parts * length) for array in (rows, windowed))

    def weight() -> None:
        cp.multiply(flat, factors, out=flat_windowed)
        library.fft(windowed, output, direction)
        cp.multiply(output, scale, out=output)

    return weight


def _check(case: _Case, given: Any, written: Any, window: Any, factor: float, name: str) -> None:
    dtype = _NAMES[case.data_type]
    computed = "float64" if dtype == "float64" else "float32"
    loaded = given if window is None else given * window.astype(computed).astype("float64")
    expected = reference.transformed(loaded, case.size, case.kind, case.direction)
    if case.store == "scale":
        expected = expected * factor
    found = reference.exact(written, real=case.kind == "c2r")
    if name == "cuFFT" and dtype == "float16":
        # It computes in half, and the element-wise kernels round to it: held to a bound that only finds mistakes.
        error = reference.errors(found, expected) / reference.norms(expected)
        assert error.max() < 0.05, f"{name}: relative error {error.max()}"
        return
    products = 0 if case.load == "identity" else 2
    allowed = reference.bound(case.size, dtype, case.kind, products) + reference.bound(case.size, "float64", case.kind)
    reference.check(found, expected, reference.norms(expected), allowed, dtype, name)


def plots(result: Result) -> dict[str, str]:
    rows = result["transforms"]
    return {"": _plot_callbacks(rows), **{_NAMES[each]: _plot_types(rows, each) for each in _NAMES}}


def _plot_callbacks(rows: list[dict[str, Any]]) -> str:
    plain = [r for r in rows if (r["kind"], r["direction"], r["data_type"]) == ("c2c", "forward", "float")]
    series = {"alone": "identity", "with a window before and a scale after": "window"}
    title = "Complex transforms in float: how many times as fast as cuFFT"
    return _plot(title, plain, "load", series)


def _plot_types(rows: list[dict[str, Any]], data_type: str) -> str:
    alone = [
        r for r in rows
        if r["data_type"] == data_type and r["load"] == "identity" and r["direction"] == _FORWARD[r["kind"]]
    ]  # fmt: skip
    series = {"complex": "c2c", "real to complex": "r2c", "complex to real": "c2r"}
    return _plot(f"Transforms in {_NAMES[data_type]}: how many times as fast as cuFFT", alone, "kind", series)


def _plot(title: str, rows: list[dict[str, Any]], by: str, series: dict[str, str]) -> str:
    found = {(row["size"], row[by]): svg.Value.faster(row["milliseconds"], "jitlto", "cuFFT") for row in rows}
    sizes = [str(size) for size in reference.SIZES]
    groups = [svg.Group(size, [found.get((size, each)) for each in series.values()]) for size in sizes]
    unit = "time of cuFFT (and element-wise kernels) / time of jitlto, by size; lines: quartiles"
    return svg.bars(title, list(series), groups, unit, reference=1.0)
