"""Host time of calls on a device: bursts in turn, short enough that the launch queue never fills."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

from cuda.core import Device


def in_turn(
    sides: dict[str, Callable[[], object]],
    rounds: int,
    burst: int,
    whole: dict[str, Callable[[], object]] | None = None,
) -> dict[str, list[float]]:
    """Nanoseconds a call of each side, one figure a round; a call of ``whole`` is a burst already."""
    calls = {name: (side, burst) for name, side in sides.items()}
    calls |= {name: (side, 1) for name, side in (whole or {}).items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    gc.disable()
    for _ in range(rounds):
        for name, (side, count) in calls.items():
            Device(0).sync()
            begin = time.perf_counter_ns()
            for _ in range(count):
                side()
            times[name].append((time.perf_counter_ns() - begin) / burst)
    gc.enable()
    Device(0).sync()
    return times


def figures(times: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(times, n=4)
    return {"median_ns": round(middle, 1), "quartile_1_ns": round(low, 1), "quartile_3_ns": round(high, 1)}
