"""Host time of a launch without a GPU: jitlto's own part, around a stand-in for ``cuda.core.launch``.

python -m tests.benchmarks.launch_overhead

Minima over many bursts, for comparing two versions of the code on one machine, in turn. What a launch costs beside
``cuda.core.launch`` itself is measured on a GPU by ``tests.benchmarks.launch``.
"""

from __future__ import annotations

import time
import timeit
from typing import Any

import numpy as np
import pytest

from tests.support.launchers import FakeDriver

BURST, ROUNDS = 2000, 60


class Array:
    """An array as PyTorch shows it."""

    def __init__(self) -> None:
        self.__cuda_array_interface__ = {
            "shape": (4,), "typestr": "<f4", "data": (4096, False), "strides": None, "version": 3
        }  # fmt: skip


class CheapArray(Array):
    """An array as CuPy shows it."""

    _c_contiguous = True

    def __init__(self) -> None:
        super().__init__()
        self.dtype = np.dtype("f4")
        self.data = self
        self.ptr = 4096


CheapArray.__module__, CheapArray.__name__ = "cupy", "ndarray"


def main() -> None:
    """Measure and print."""
    with pytest.MonkeyPatch.context() as patch:
        fake = FakeDriver(patch)
        patch.setattr("jitlto.runtime.launch.launcher.launch", _launch)
        for name, seconds in _measure(fake).items():
            print(f"{name:28} {1e9 * seconds:9.0f} ns")


def _launch(*_: Any) -> None:
    """Stand for ``cuda.core.launch``."""


def _measure(fake: FakeDriver) -> dict[str, float]:
    begin = time.perf_counter()
    launcher = fake.launcher("float const*", "float*", "unsigned int")
    stream, cheap, other = fake.stream, CheapArray(), Array()
    times = [time.perf_counter() - begin]
    for _ in range(2):
        begin = time.perf_counter()
        launcher(stream, 4, 256, cheap, cheap, 77)
        times.append(time.perf_counter() - begin)
    figures = dict(zip(("making a launcher", "its first launch", "its second launch"), times, strict=True))
    bound = launcher.bind(stream, 4, 256, cheap, cheap, 77)
    for name, work in {
        "the stand-in alone": lambda: _launch(stream, 1, 2, 3, 4, 5),
        "arrays as CuPy's": lambda: launcher(stream, 4, 256, cheap, cheap, 77),
        "arrays as PyTorch's": lambda: launcher(stream, 4, 256, other, other, 77),
        "with shared memory": lambda: launcher(stream, 4, 256, cheap, cheap, 77, shared_memory=4096),
        "a bound launch": bound,
    }.items():
        work()
        figures[name] = min(timeit.repeat(work, number=BURST, repeat=ROUNDS)) / BURST
    return figures


if __name__ == "__main__":
    main()
