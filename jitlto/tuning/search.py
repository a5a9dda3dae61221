"""The search for the fastest variant: few times of all, and more of those that may be the best.

Each candidate is timed early, once or twice, which shows those that are far behind. The others are timed in turn,
round after round, so that clocks and neighbours weigh on all alike; only these times decide between them. After each
round those that are behind by more than the noise are dropped, and the slower half if there would not be time for all
(successive halving), but not the default, which wins ties. The noise is that of the default, which is timed first.
Nothing in here knows of a GPU: what times is an object with a method ``time``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Protocol, TypeAlias

from jitlto.base.errors import JitltoError
from jitlto.record.tuning import Variant
from jitlto.tuning.wisdom import TIE

#: Times of each variant that a search which leaves nothing out would take; shares of time are of that.
EXHAUSTIVE = 100

_SHARE = 0.08  # of the time of an exhaustive search
_FAR = 2.0  # times as slow as the fastest: dropped at once
_ENOUGH = 8  # times before which no choice is sure
_DRIFT = 0.02  # of clocks, while all are timed
_LEAST_NOISE = 0.001  # of one time, relative to it

Launch: TypeAlias = Callable[[], object]
#: Makes a variant ready, and returns its launch; raises JitltoError if it cannot be used.
Prepare: TypeAlias = Callable[[Variant], Launch]


class Timer(Protocol):
    """What times launches."""

    def time(self, launch: Launch) -> float: ...


@dataclass
class Candidate:
    """A variant and its times so far, in seconds.

    Args:
        variant: The variant.
        launch: Its launch.
        early: Times taken when it was entered.
        in_turn: Times taken in turn with others; where there are enough of them, only these count.
    """

    variant: Variant
    launch: Launch
    early: list[float] = field(default_factory=list)
    in_turn: list[float] = field(default_factory=list)

    @property
    def times(self) -> list[float]:
        """The times that count, in the order in which they were taken."""
        return self.in_turn if len(self.in_turn) >= _ENOUGH // 2 else self.early + self.in_turn

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


@dataclass
class Outcome:
    """The result of a search.

    Args:
        candidates: All that were timed, the default first.
        rejected: Why variants cannot be used.
        untried: How many variants were not timed.
        seconds: Seconds of device time that were measured.
        is_complete: False if the budget ended the search.
    """

    candidates: list[Candidate]
    rejected: dict[Variant, str]
    untried: int = 0
    seconds: float = 0.0
    is_complete: bool = True

    @property
    def exhaustive(self) -> float:
        """What timing all of them ``EXHAUSTIVE`` times would take, by their medians."""
        return EXHAUSTIVE * sum(each.seconds for each in self.candidates)


class Search:
    """One search.

    Args:
        variants: What may be chosen, the default first.
        prepare: Makes a variant ready.
        timer: Times launches.
        budget: Seconds, by the clock, after which no more times are taken.
        clock: Seconds, from any origin.

    Raises:
        JitltoError: If the default cannot be used.
    """

    def __init__(
        self,
        variants: Sequence[Variant],
        prepare: Prepare,
        timer: Timer,
        *,
        budget: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._variants, self._prepare, self._timer, self._clock = list(variants), prepare, timer, clock
        self._end = clock() + budget
        self._rejected: dict[Variant, str] = {}
        self._measured = 0.0
        self._sigma = _LEAST_NOISE  # of one time, relative to it
        self._candidates: list[Candidate] = []  # the default first

    def run(self) -> Outcome:
        """Search."""
        default = self._enter(self._variants[0])
        while len(default.times) < _ENOUGH + 2:
            self._time(default)
        self._sigma = max(_LEAST_NOISE, 1.48 * default.spread)
        for variant in self._variants[1:]:
            if self._is_late():
                break
            try:
                self._enter(variant)
            except JitltoError as error:
                self._rejected[variant] = error.what
        is_complete = self._narrow(default)
        _scale(self._candidates)
        untried = len(self._variants) - len(self._candidates) - len(self._rejected)
        return Outcome(self._candidates, self._rejected, untried, self._measured, is_complete)

    def _enter(self, variant: Variant) -> Candidate:
        """Make a variant ready and time it.

        Raises:
            JitltoError: If it cannot be used.
        """
        candidate = Candidate(variant, self._prepare(variant))
        self._time(candidate)
        if not self._candidates or candidate.seconds < _FAR * self._fastest() * 2:
            self._time(candidate)  # the first may have been disturbed
        self._candidates.append(candidate)
        return candidate

    def _narrow(self, default: Candidate) -> bool:
        """Time those that may be the best more often, and drop the others; return False if the budget ended it."""
        edge = _FAR * self._fastest()
        live = [each for each in self._candidates if each is default or each.seconds <= edge]
        allowed = _SHARE * EXHAUSTIVE * sum(each.seconds for each in self._candidates)
        rounds = 1
        while not self._is_late():
            live = self._survivors(live, allowed - self._measured)
            few = min(len(each.in_turn) for each in live) < _ENOUGH
            if not few and (self._measured >= allowed or len(live) == 1):
                return True
            for turn in range(rounds):
                for each in (*live[turn % len(live) :], *live[: turn % len(live)]):
                    if self._is_late():
                        return False
                    if self._measured < allowed or len(each.in_turn) < _ENOUGH:
                        self._time(each, in_turn=True)
            rounds = min(2 * rounds, _ENOUGH)
        return False

    def _survivors(self, live: list[Candidate], left: float) -> list[Candidate]:
        """Return those that the noise may hide behind the fastest, as many as there is time for; the faster first.

        The default is among them as long as it may be the fastest: otherwise its early times would decide its ties.
        """
        default = self._candidates[0]
        ranked = sorted(live, key=lambda each: each.seconds)
        # The first times were not taken in turn: clocks may have changed meanwhile.
        drift = 0.0 if ranked[-1].in_turn else _DRIFT
        edge = ranked[0].seconds * (1 + TIE + drift) * (1 + 3 * self._noise(ranked[0]))
        near = [each for each in ranked if each.seconds * (1 - 3 * self._noise(each)) <= edge]
        while len(near) > 2:
            needed = sum(each.seconds * max(0, _ENOUGH - len(each.in_turn)) for each in near)
            if needed <= left:
                break
            half = near[: len(near) // 2]
            near = [*half, default] if default in near and default not in half else near[: (len(near) + 1) // 2]
        return near

    def _noise(self, candidate: Candidate) -> float:
        """Return the standard error of a candidate's time, relative to it."""
        own = 1.48 * candidate.spread if len(candidate.times) >= _ENOUGH else 0.0
        return 1.25 * max(own, self._sigma) / sqrt(len(candidate.times))

    def _time(self, candidate: Candidate, *, in_turn: bool = False) -> None:
        seconds = self._timer.time(candidate.launch)
        self._measured += seconds
        (candidate.in_turn if in_turn else candidate.early).append(max(seconds, 1e-9))

    def _fastest(self) -> float:
        return min(each.seconds for each in self._candidates)

    def _is_late(self) -> bool:
        return self._clock() >= self._end


def _scale(candidates: Iterable[Candidate]) -> None:
    """Scale early times by how much longer or shorter the same launches took when they were timed in turn."""
    ratios = [each.seconds / statistics.median_low(each.early) for each in candidates if each.times is each.in_turn]
    ratio = statistics.median(ratios or [1.0])
    for each in candidates:
        each.early = [seconds * ratio for seconds in each.early]
