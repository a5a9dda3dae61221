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
from collections.abc import Callable, Iterable, Mapping, Sequence
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
        launch: Its launch; None if its times are from an earlier search.
        early: Times taken when it was entered, or in an earlier search.
        in_turn: Times taken in turn with others; where there are enough of them, only these count.
    """

    variant: Variant
    launch: Launch | None
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
        known: Times of variants from an earlier search; of these only the fastest are timed again.
        on_time: Called with each candidate that was timed, and why it cannot be used if so.
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
        known: Mapping[Variant, Sequence[float]] | None = None,
        on_time: Callable[[Variant, str], object] = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._variants, self._prepare, self._timer = list(variants), prepare, timer
        self._known = dict(known or {})
        self._on_time, self._clock = on_time, clock
        self._end = clock() + budget
        self._rejected: dict[Variant, str] = {}
        self._measured = 0.0
        self._sigma = _LEAST_NOISE  # of one time, relative to it
        self._candidates: dict[Variant, Candidate] = {}

    def run(self) -> Outcome:
        """Search."""
        default = self._enter(self._variants[0], needed=True)
        assert default is not None  # noqa: S101 - it is needed
        while len(default.times) < _ENOUGH + 2:
            self._time(default)
        self._sigma = max(_LEAST_NOISE, 1.48 * default.spread)
        for variant in self._variants[1:]:
            if self._is_late():
                break
            self._enter(variant)
        is_complete = self._narrow(default)
        timed = list(self._candidates.values())
        _scale(timed)
        untried = len(self._variants) - len(timed) - len(self._rejected)
        return Outcome(timed, self._rejected, untried, self._measured, is_complete)

    def _enter(self, variant: Variant, *, needed: bool = False) -> Candidate | None:
        """Make a variant ready and time it; None if it cannot be used."""
        times = list(self._known.get(variant, ()))
        fastest = min((statistics.median(each) for each in self._known.values() if each), default=0.0)
        if times and not needed and statistics.median(times) > (1 + 10 * TIE) * fastest:
            self._candidates[variant] = candidate = Candidate(variant, None, times)
            return candidate
        try:
            candidate = Candidate(variant, self._prepare(variant))
            self._time(candidate)
            if not self._candidates or candidate.seconds < _FAR * self._fastest() * 2:
                self._time(candidate)  # the first may have been disturbed
        except JitltoError as error:
            if needed:
                raise
            self._rejected[variant] = error.what
            self._on_time(variant, error.what)
            return None
        self._candidates[variant] = candidate
        return candidate

    def _narrow(self, default: Candidate) -> bool:
        """Time those that may be the best more often, and drop the others; return False if the budget ended it."""
        timed, edge = self._candidates.values(), _FAR * self._fastest()
        live = [c for c in timed if c is default or (c.launch is not None and c.seconds <= edge)]
        allowed = _SHARE * EXHAUSTIVE * sum(each.seconds for each in timed)
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
        default = self._candidates[self._variants[0]]
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
        assert candidate.launch is not None  # noqa: S101 - known ones are not timed
        seconds = self._timer.time(candidate.launch)
        self._measured += seconds
        (candidate.in_turn if in_turn else candidate.early).append(max(seconds, 1e-9))
        self._on_time(candidate.variant, "")

    def _fastest(self) -> float:
        return min(each.seconds for each in self._candidates.values())

    def _is_late(self) -> bool:
        return self._clock() >= self._end


def _scale(candidates: Iterable[Candidate]) -> None:
    """Scale early times by how much longer or shorter the same launches took when they were timed in turn."""
    ratios = [each.seconds / statistics.median_low(each.early) for each in candidates if each.times is each.in_turn]
    ratio = statistics.median(ratios or [1.0])
    for each in candidates:
        each.early = [seconds * ratio for seconds in each.early]
