"""Times of sides that take turns, on the host and on the device, and what is said of them."""

import gc
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cuda.core import Device

Side = Callable[[], object]
Times = dict[str, list[float]]


def synchronize() -> None:
    """Wait for the device."""
    current = Device(0)
    current.set_current()
    current.sync()


def device_milliseconds(side: Side) -> float:
    """Device time of what one call does on CuPy's current stream."""
    import cupy as cp

    begin, end = cp.cuda.Event(), cp.cuda.Event()
    begin.record()
    side()
    end.record()
    end.synchronize()
    return float(cp.cuda.get_elapsed_time(begin, end))


def wall_milliseconds(side: Side) -> float:
    """Host time of one call, until the device has done it."""
    synchronize()
    begin = time.perf_counter()
    side()
    synchronize()
    return 1000 * (time.perf_counter() - begin)


def host_nanoseconds(side: Side) -> float:
    """Host time of one call, whatever the device does meanwhile."""
    synchronize()
    gc.disable()
    begin = time.perf_counter_ns()
    side()
    taken = time.perf_counter_ns() - begin
    gc.enable()
    return float(taken)


def seconds(side: Side) -> float:
    """Host time of one call, without a device."""
    begin = time.perf_counter()
    side()
    return time.perf_counter() - begin


def processor_seconds(side: Side) -> float:
    """Processor time of this process and those that it starts and waits for, in one call.

    Unlike that of the clock, other work on the machine hardly changes it.
    """

    def used() -> float:
        parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(part.ru_utime + part.ru_stime for part in parts)

    begin = used()
    side()
    return used() - begin


def in_turn(sides: Mapping[str, Side], rounds: int, measure: Callable[[Side], float], warm: int = 0) -> Times:
    """Times of each side, call by call in turn, so that clocks and neighbours weigh on all alike.

    Each round begins with another side. The first ``warm`` rounds are not counted.
    """
    times: Times = {name: [] for name in sides}
    order = list(sides)
    for turn in range(rounds + warm):
        first = turn % len(order)
        for name in order[first:] + order[:first]:
            elapsed = measure(sides[name])
            if turn >= warm:
                times[name].append(elapsed)
    return times


def in_bursts(sides: Mapping[str, Side], rounds: int, burst: int, whole: Mapping[str, Side] | None = None) -> Times:
    """Nanoseconds a call on the host, in bursts short enough that the launch queue never fills.

    A call of ``whole`` is a burst already.
    """

    def burst_of(side: Side) -> Side:
        def calls() -> None:
            for _ in range(burst):
                side()

        return calls

    every = {name: burst_of(side) for name, side in sides.items()} | dict(whole or {})
    times = in_turn(every, rounds, host_nanoseconds)
    return {name: [each / burst for each in found] for name, found in times.items()}


def summary(times: Sequence[float]) -> dict[str, Any]:
    """Median and quartiles of times, rounded to what they can mean."""
    quartiles = statistics.quantiles(times, n=4)[::2] if len(times) > 1 else [times[0]] * 2
    return {"median": _rounded(statistics.median(times)), "quartiles": [_rounded(value) for value in quartiles]}


def summaries(times: Times) -> dict[str, dict[str, Any]]:
    """That of each side."""
    return {name: summary(each) for name, each in times.items()}


def ratio(times: Times, name: str, base: str) -> float:
    """How many times as long one side takes as another, as the median over rounds."""
    return round(statistics.median(a / b for a, b in zip(times[name], times[base], strict=True)), 3)


def beyond(times: Times, name: str, base: str) -> float:
    """How much longer one side takes than another, as the median over rounds."""
    return round(statistics.median(a - b for a, b in zip(times[name], times[base], strict=True)), 1)


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
