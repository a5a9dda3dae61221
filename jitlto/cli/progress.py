"""How far a build is: a bar for a person, now and then a line for a log, nothing for a short build."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from jitlto.build.execution.events import NO_OBSERVER, Observer, Span
from jitlto.errors import JitltoError
from jitlto.model.fragment import FragmentKey

_INTERVAL = 5.0  # seconds between two lines of a log

Clock = Callable[[], float]


@contextmanager
def progress(
    what: str,
    *,
    quiet: bool = False,
    stream: TextIO | None = None,
    interval: float = _INTERVAL,
    clock: Clock = time.monotonic,
) -> Iterator[Observer]:
    """Show how far a build is.

    Parameters
    ----------
    what : str
        What every line begins with, such as ``compiling``.
    quiet : bool
        Show nothing.
    stream : text stream, optional
        By default standard error. On a terminal it gets a bar, which vanishes at the end; else plain lines.
    interval : float
        Seconds between two plain lines, and before the first.
    clock : callable
        Seconds, from any origin.

    Yields
    ------
    Observer
        To be given to :func:`jitlto.build.pipeline.build`.
    """
    if quiet:
        yield NO_OBSERVER
        return
    stream = stream or sys.stderr
    console = Console(file=stream)
    # Not what the console takes for a terminal: FORCE_COLOR, which CI systems set, asks for a log in colours, no bar.
    if not stream.isatty() or console.is_dumb_terminal:
        yield _Lines(what, stream, interval, clock)
        return
    bar = _Bar(what, console, clock)
    with bar.shown:
        yield bar


class Tally(Observer):
    """Counts what is done and foretells the rest.

    Parameters
    ----------
    clock : callable
        Seconds, from any origin.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._begin = self._now = clock()
        self._costs: dict[FragmentKey, float] = {}
        self._cost_done = 0.0
        self._cost_left = 0.0  # kept, not summed up when asked: a bar asks from a thread of its own
        self.total = 0
        self.hits = 0
        self.compiles = 0
        self.failures = 0

    def changed(self) -> None:
        """Called after every count; here nobody looks."""

    def started(self, keys: Collection[FragmentKey], costs: Mapping[str, float] | None = None) -> None:
        """Begin to count. A fragment whose cost is unknown is expected to take as long as the others on average."""
        known = {key: costs[str(key)] for key in keys if str(key) in costs} if costs else {}
        # A mean of zero would say that the rest takes no time.
        usual = sum(known.values()) / len(known) if any(known.values()) else 1.0
        self._costs = {key: known.get(key, usual) for key in keys}
        self._cost_left = sum(self._costs.values())
        self.total = len(keys)
        self._begin = self._now = self._clock()
        self.changed()

    def cached(self, key: FragmentKey) -> None:
        """Count a fragment that took no compile."""
        self.hits += 1
        self._cost_left -= self._costs[key]
        self._now = self._clock()
        if not self._worked:
            self._begin = self._now  # looking up is not compiling: it would lower the rate
        self.changed()

    def compiled(self, span: Span) -> None:
        """Count a compile."""
        self.compiles += 1
        self._work(span.key)

    def failed(self, key: FragmentKey, error: JitltoError) -> None:  # noqa: ARG002
        """Count a failure, which took a compile too."""
        self.failures += 1
        self._work(key)

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
        """By the expected costs of what is done and of what is left; None where nothing tells."""
        elapsed = self._now - self._begin
        if self._cost_done <= 0 or elapsed <= 0 or self.done >= self.total:
            return None
        # As foreseen at the last event: from then on the clock runs down.
        foreseen = self._cost_left / self._cost_done * elapsed
        return max(0.0, foreseen - (self._clock() - self._now))

    @property
    def details(self) -> str:
        """All but the count: ``80 from the cache, 14.2/s, 15 s left``."""
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

    def _work(self, key: FragmentKey) -> None:
        self._cost_done += self._costs[key]
        self._cost_left -= self._costs[key]
        self._now = self._clock()
        self.changed()


def duration(seconds: float) -> str:
    """A time span as a person says it: ``15 s``, ``2 min 05 s``, ``1 h 12 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


class _Bar(Tally):
    def __init__(self, what: str, console: Console, clock: Clock) -> None:
        super().__init__(clock)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Details(self))
        self.shown = Progress(*columns, console=console, transient=True)
        self._task = self.shown.add_task(what, total=None)

    def changed(self) -> None:
        self.shown.update(self._task, total=self.total, completed=self.done)


class _Details(ProgressColumn):
    """A tally's details, as they are when the bar is drawn."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self._tally = tally

    def render(self, task: Task) -> Text:  # noqa: ARG002
        return Text(self._tally.details)


class _Lines(Tally):
    def __init__(self, what: str, stream: TextIO, interval: float, clock: Clock) -> None:
        super().__init__(clock)
        self._what = what
        self._stream = stream
        self._interval = interval
        self._last = clock()

    def changed(self) -> None:
        now = self._clock()
        # The last fragment needs no line: the command's own summary follows.
        if now - self._last < self._interval or self.done >= self.total:
            return
        self._last = now
        count = f"{self._what}: {self.done} of {self.total}"
        print(", ".join(filter(None, [count, self.details])), file=self._stream, flush=True)
