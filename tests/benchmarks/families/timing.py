"""Times on the device and on the host, taken in turn, and what is said of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Side = Callable[[], object]
_FILLS_THE_L2 = 1 << 30  # bytes


def milliseconds(side: Side) -> float:
    """Device time of what one call does on CuPy's current stream."""
    import cupy as cp

    begin, end = cp.cuda.Event(), cp.cuda.Event()
    begin.record()
    side()
    end.record()
    end.synchronize()
    return float(cp.cuda.get_elapsed_time(begin, end))


def cold_milliseconds(side: Side) -> float:
    """As :func:`milliseconds`, with nothing of the data in the L2, which a launch that is repeated would find there.

    The device is busy with that while the host launches: so what the host takes is not counted for short kernels.
    """
    import cupy as cp

    other = cp.empty(_FILLS_THE_L2, cp.uint8)
    other.fill(0)
    return milliseconds(side)


def wall_milliseconds(side: Side) -> float:
    """Host time of one call, until the device has done it."""
    import cupy as cp

    cp.cuda.Device().synchronize()
    begin = time.perf_counter()
    side()
    cp.cuda.Device().synchronize()
    return 1000 * (time.perf_counter() - begin)


def in_turn(
    sides: Mapping[str, Side], rounds: int, measure: Callable[[Side], float] = milliseconds, warm: int = 2
) -> dict[str, list[float]]:
    """Times of each side, call by call in turn, so that clocks and neighbours weigh on all alike.

    Each round begins with another side. The first ``warm`` rounds are not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in sides}
    order = list(sides)
    for turn in range(rounds + warm):
        first = turn % len(order)
        for name in order[first:] + order[:first]:
            elapsed = measure(sides[name])
            if turn >= warm:
                times[name].append(elapsed)
    return times


def summary(times: Sequence[float]) -> dict[str, Any]:
    """Median and quartiles of times, rounded to what they can mean."""
    quartiles = statistics.quantiles(times, n=4)[::2] if len(times) > 1 else [times[0]] * 2
    return {"median": _rounded(statistics.median(times)), "quartiles": [_rounded(value) for value in quartiles]}


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def copy_bandwidth(size: int, rounds: int = 15) -> dict[str, Any]:
    """GB/s of a copy within device memory, bytes read and bytes written both counted."""
    import cupy as cp

    source, target = cp.zeros(size, cp.uint8), cp.empty(size, cp.uint8)
    times = in_turn({"copy": lambda: cp.copyto(target, source)}, rounds)["copy"]
    rates = [2 * size / 1e6 / value for value in times]
    return {"bytes": size, "GB/s": summary(rates)}
