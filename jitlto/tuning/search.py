"""The search for the fastest variant: few times of all, and more of those that may be the best.

Successive halving: of those that are left the slower half is dropped, and the others are timed in turn, so that clocks
and neighbours weigh on all alike, and more often than in the round before. The default is timed too, for it wins ties.
Nothing in here knows of a GPU: what times is a function.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from jitlto.base.errors import JitltoError
from jitlto.record.tuning import Variant

_FAR = 2.0  # times as slow as the fastest: dropped after the first round
_FIRST = 2  # times of each variant in the first round
_ENOUGH = 8  # times of the last that are left

Launch: TypeAlias = Callable[[], object]


@dataclass
class Candidate:
    """A variant, its launch, and all times that were taken of it, in seconds."""

    variant: Variant
    launch: Launch
    taken: list[float] = field(default_factory=list)

    @property
    def times(self) -> list[float]:
        """The times that count: clocks may have changed since the first round."""
        return self.taken[_FIRST:] or self.taken

    @property
    def seconds(self) -> float:
        """The median, the lower one of two, because what disturbs a launch makes it longer."""
        return statistics.median_low(self.times)


@dataclass
class Outcome:
    """The result of a search: all that were timed, the default first, and why others cannot be used, or were not."""

    candidates: list[Candidate]
    rejected: dict[Variant, str]


def search(
    variants: Sequence[Variant],
    prepare: Callable[[Variant], Launch],
    measure: Callable[[Launch], float],
    *,
    budget: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Search for the fastest variant; the default is the first.

    Args:
        prepare: Makes a variant ready, and returns its launch; raises JitltoError if it cannot be used.
        measure: Returns the seconds that a launch takes.
        budget: Seconds, by the clock, after which no more times are taken.

    Raises:
        JitltoError: If the default cannot be used.
    """
    end = clock() + budget
    outcome = Outcome([], {})

    def take(candidate: Candidate) -> float:
        return max(measure(candidate.launch), 1e-9)  # a clock may say 0, which is no time in wisdom

    for number, variant in enumerate(variants):
        if number and clock() >= end:
            outcome.rejected[variant] = "not timed: the budget was spent"
            continue
        try:
            candidate = Candidate(variant, prepare(variant))
        except JitltoError as error:
            if not number:
                raise
            outcome.rejected[variant] = error.what
            continue
        candidate.taken = [take(candidate) for _ in range(_FIRST)]
        outcome.candidates.append(candidate)
    default = outcome.candidates[0]
    fastest = min(each.seconds for each in outcome.candidates)
    live, count = [each for each in outcome.candidates if each.seconds <= _FAR * fastest], _FIRST
    while len(live) > 1 or len(default.times) < _ENOUGH:
        live = sorted(live, key=lambda each: each.seconds)[: (len(live) + 1) // 2]
        count = min(2 * count, _ENOUGH)
        is_apart = default not in live and len(default.times) < _ENOUGH
        for each in count * (live + is_apart * [default]):
            if clock() >= end:
                return outcome
            each.taken.append(take(each))
    return outcome
