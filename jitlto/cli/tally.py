"""A count of work that is done, and a prediction of the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from jitlto.base.errors import JitltoError
from jitlto.build.execution.events import Observer, Span
from jitlto.record.fragment import FragmentKey

Clock = Callable[[], float]


class Tally(Observer):
    """Counts what is done and predicts the time left; shows nothing."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._begin = self._now = clock()
        self.total = 0
        self.hits = 0
        self.compiles = 0
        self.failures = 0
        #: Called with each failure.
        self.on_failure: Callable[[FragmentKey, JitltoError], object] = lambda _key, _error: None

    def say(self, text: str) -> None:
        """Print a text beside the progress, unless nothing is shown."""

    def changed(self) -> None:
        """Called after every count."""

    def started(self, keys: Collection[object]) -> None:
        """Count further work."""
        if not self.total:
            self._begin = self._now = self._clock()
        self.total += len(keys)
        self.changed()

    def cached(self, key: FragmentKey) -> None:  # noqa: ARG002
        """Count a fragment found in the cache."""
        self.hits += 1
        self._now = self._clock()
        if not self._worked:
            self._begin = self._now  # cache lookups would distort the rate of compiles
        self.changed()

    def compiled(self, span: Span) -> None:
        """Count a compile."""
        self.finished(span.key)

    def finished(self, key: object) -> None:  # noqa: ARG002
        """Count a piece of work."""
        self.compiles += 1
        self._work()

    def failed(self, key: FragmentKey, error: JitltoError) -> None:
        """Count a failed compile."""
        self.failures += 1
        self._work()
        self.on_failure(key, error)

    @property
    def done(self) -> int:
        """Fragments cached, compiled and failed."""
        return self.hits + self.compiles + self.failures

    @property
    def rate(self) -> float | None:
        """Compiles a second, None before the first."""
        elapsed = self._now - self._begin
        return self._worked / elapsed if self._worked and elapsed > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """The predicted time left, in seconds, at the rate so far; None if there is no data yet."""
        if self.rate is None or self.done >= self.total:
            return None
        # Predicted at the last event; since then, time has passed.
        predicted = (self.total - self.done) / self.rate
        return max(0.0, predicted - (self._clock() - self._now))

    @property
    def details(self) -> str:
        """The progress except the count: ``80 from the cache, 14.2/s, 15 s left``."""
        rate, left = self.rate, self.seconds_left
        parts = [
            f"{self.hits} from the cache" if self.hits else "",
            f"{self.failures} failed" if self.failures else "",
            "" if rate is None else f"{rate:.1f}/s" if rate >= 0.5 else f"{60 * rate:.1f}/min",
            "" if left is None else f"{duration(left)} left",
        ]
        return ", ".join(filter(None, parts))

    @property
    def _worked(self) -> int:
        return self.compiles + self.failures

    def _work(self) -> None:
        self._now = self._clock()
        self.changed()


def duration(seconds: float) -> str:
    """Format a time span for people: ``15 s``, ``2 min 05 s``, ``1 h 12 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
