"""Host time of a launch without a GPU: jitlto's own part, around a stand-in for ``cuda.core.launch``.

python -m tests.benchmarks.launch_overhead

Minima over many bursts, for comparing two versions of the code on one machine, in turn. What a launch costs beside
``cuda.core.launch`` itself is measured on a GPU by ``tests.benchmarks.launch``.
"""

from __future__ import annotations

import sys
import time
import timeit
from collections.abc import Callable
from typing import Any

import pytest

from jitlto.runtime.launch.launcher import Launcher
from tests.support.arrays import STREAMS, TORCH, CupyArray, JaxArray, NumbaArray, TorchTensor
from tests.support.launchers import FakeDriver

BURST, ROUNDS = 2000, 60


def main() -> None:
    """Measure and print."""
    with pytest.MonkeyPatch.context() as patch:
        fake = FakeDriver(patch)
        patch.setattr("jitlto.runtime.launch.launcher.launch", _launch)
        patch.setitem(sys.modules, "torch", TORCH)
        for name, seconds in _measure(fake).items():
            print(f"{name:45} {1e9 * seconds:9.0f} ns")


def _launch(*_: Any) -> None:
    """Stand for ``cuda.core.launch``."""


def _measure(fake: FakeDriver) -> dict[str, float]:
    begin = time.perf_counter()
    launcher = fake.launcher("float const*", "float*", "unsigned int")
    stream, cheap = fake.stream, CupyArray()
    times = [time.perf_counter() - begin]
    for _ in range(2):
        begin = time.perf_counter()
        launcher(stream, 4, 256, cheap, cheap, 77)
        times.append(time.perf_counter() - begin)
    figures = dict(zip(("making a launcher", "its first launch", "its second launch"), times, strict=True))
    bound = launcher.bind(stream, 4, 256, cheap, cheap, 77)
    arrays = [kind() for kind in (CupyArray, NumbaArray, TorchTensor, JaxArray)]
    others = [kind(0) for kind in STREAMS]
    for name, work in {
        "the stand-in alone": lambda: _launch(stream, 1, 2, 3, 4, 5),
        **{f"{type(array).__module__} {type(array).__name__}": _launched(launcher, stream, array) for array in arrays},
        **{f"{type(other).__module__} stream": _launched(launcher, other, cheap) for other in others},
        "no stream": _launched(launcher, None, cheap),
        "with shared memory": lambda: launcher(stream, 4, 256, cheap, cheap, 77, shared_memory=4096),
        "a bound launch": bound,
    }.items():
        for _ in range(3):
            work()
        figures[name] = min(timeit.repeat(work, number=BURST, repeat=ROUNDS)) / BURST
    return figures


def _launched(launcher: Launcher, stream: object, array: object) -> Callable[[], None]:
    if isinstance(array, JaxArray):  # read-only
        return lambda: launcher(stream, 4, 256, array, None, 77)
    return lambda: launcher(stream, 4, 256, array, array, 77)


if __name__ == "__main__":
    main()
