"""Simulated devices for tuning: times with noise, outliers and clocks that drift."""

import random
from collections.abc import Callable
from typing import Any


class Simulated:
    """What times launches that return their true seconds, and holds arrays as bytes in a dict.

    Parameters
    ----------
    seed : int
    noise : float
        Standard deviation of a time, relative to it.
    outliers : float
        Share of times that are disturbed, and up to twice as long.
    drift : float
        Standard deviation of the change of the clock from one time to the next.
    """

    stream = "stream"

    def __init__(self, seed: int = 0, noise: float = 0.003, outliers: float = 0.02, drift: float = 0.0001) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._noise, self._outliers, self._drift, self._clock = noise, outliers, drift, 1.0
        self.count = 0
        #: Seconds that have passed, for budgets.
        self.now = 0.0
        self.arrays: dict[Any, bytes] = {}

    def time(self, launch: Callable[[], object]) -> float:
        self.count += 1
        self._clock *= 1 + self._random.gauss(0, self._drift)
        seconds = float(launch()) * self._clock * (1 + self._random.gauss(0, self._noise))  # type: ignore[arg-type]
        if self._random.random() < self._outliers:
            seconds *= 1 + self._random.random()
        self.now += seconds
        return seconds

    def read(self, array: Any) -> bytes:
        return self.arrays[array.name]

    def write(self, array: Any, data: bytes) -> None:
        self.arrays[array.name] = data
