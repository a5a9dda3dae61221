"""The search for the fastest variant: few times of all, and more of those that may be the best.

Each variant is timed twice, which shows those that are far behind. The others are timed in turn, round after round, so
that clocks and neighbours weigh on all alike. After each round those that are behind by more than the noise are
dropped, and the slower half if there would not be time for all (successive halving), but not the default, which wins
ties. The noise is that of the default. Nothing in here knows of a GPU: what times is a function.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import TypeAlias

from jitlto.base.errors import JitltoError
from jitlto.record.tuning import Variant
from jitlto.tuning.wisdom import TIE

#: Times of each variant that a search which leaves nothing out would take; shares of time are of that.
EXHAUSTIVE = 100

_SHARE = 0.08  # of the time of an exhaustive search
_FAR = 2.0  # times as slow as the fastest: dropped at once
_FIRST = 2  # times of each variant before any are timed in turn
_ENOUGH = 8  # times before which no choice is sure
_LEAST_NOISE = 0.001  # of one time, relative to it

Launch: TypeAlias = Callable[[], object]
#: Makes a variant ready, and returns its launch; raises JitltoError if it cannot be used.
Prepare: TypeAlias = Callable[[Variant], Launch]


@dataclass
class Candidate:
    """A variant, its launch, and all times that were taken of it, in seconds."""

    variant: Variant
    launch: Launch
    taken: list[float] = field(default_factory=list)

    @property
    def times(self) -> list[float]:
        """The times that count: clocks may have changed since the first."""
        return self.taken[_FIRST:] if len(self.taken) >= _ENOUGH else self.taken

    @property
    def seconds(self) -> float:
        """The median; of few times the lower one, because what disturbs a launch makes it longer."""
        return (statistics.median_low if len(self.times) < _ENOUGH else statistics.median)(self.times)

    @property
    def spread(self) -> float:
        """Half of the range between the quartiles, relative to the median."""
        if len(self.times) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return (high - low) / 2 / self.seconds

    def noise(self, least: float) -> float:
        """Return the standard error of the median, relative to it; ``least`` is the noise of one time."""
        own = 1.48 * self.spread if len(self.times) >= _ENOUGH else 0.0
        return 1.25 * max(own, least) / sqrt(len(self.times))


@dataclass
class Outcome:
    """The result of a search.

    Args:
        candidates: All that were timed, the default first.
        rejected: Why variants cannot be used.
        untried: How many variants were not timed.
        is_complete: False if the budget ended the search.
    """

    candidates: list[Candidate]
    rejected: dict[Variant, str]
    untried: int = 0
    is_complete: bool = True

    @property
    def seconds(self) -> float:
        """Seconds of device time that were measured."""
        return sum(sum(each.taken) for each in self.candidates)

    @property
    def exhaustive(self) -> float:
        """What timing all of them ``EXHAUSTIVE`` times would take, by their medians."""
        return EXHAUSTIVE * sum(each.seconds for each in self.candidates)


def search(
    variants: Sequence[Variant],
    prepare: Prepare,
    measure: Callable[[Launch], float],
    *,
    budget: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Search for the fastest variant.

    Args:
        variants: What may be chosen, the default first.
        prepare: Makes a variant ready.
        measure: Returns the seconds that a launch takes.
        budget: Seconds, by the clock, after which no more times are taken.
        clock: Seconds, from any origin.

    Raises:
        JitltoError: If the default cannot be used.
    """
    end = clock() + budget
    outcome = Outcome([], {})

    def take(candidate: Candidate, count: int) -> None:
        candidate.taken += [max(measure(candidate.launch), 1e-9) for _ in range(count)]

    for number, variant in enumerate(variants):
        if number and clock() >= end:
            outcome.untried = len(variants) - number
            break
        try:
            candidate = Candidate(variant, prepare(variant))
        except JitltoError as error:
            if not number:
                raise
            outcome.rejected[variant] = error.what
            continue
        take(candidate, _FIRST if number else _FIRST + _ENOUGH)
        outcome.candidates.append(candidate)
    default = outcome.candidates[0]
    noise = max(_LEAST_NOISE, 1.48 * default.spread)
    fastest = min(each.seconds for each in outcome.candidates)
    live = [each for each in outcome.candidates if each is default or each.seconds <= _FAR * fastest]
    allowed = _SHARE * outcome.exhaustive
    while (len(live) > 1 and outcome.seconds < allowed) or min(len(each.times) for each in live) < _ENOUGH:
        for each in live:
            if clock() >= end:
                outcome.is_complete = False
                return outcome
            take(each, 1)
        live = _survivors(live, default, noise, allowed - outcome.seconds)
    return outcome


def _survivors(live: list[Candidate], default: Candidate, noise: float, left: float) -> list[Candidate]:
    """Return those that the noise may hide behind the fastest, as many as there is time for; the faster first.

    The default is among them as long as it may be the fastest: otherwise its first times would decide its ties.
    """
    ranked = sorted(live, key=lambda each: each.seconds)
    edge = ranked[0].seconds * (1 + TIE) * (1 + 3 * ranked[0].noise(noise))
    near = [each for each in ranked if each.seconds * (1 - 3 * each.noise(noise)) <= edge]
    while len(near) > 2:
        if sum(each.seconds * max(0, _ENOUGH - len(each.times)) for each in near) <= left:
            break
        half = near[: len(near) // 2]
        near = [*half, default] if default in near and default not in half else near[: (len(near) + 1) // 2]
    return near
