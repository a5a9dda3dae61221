"""Progress of builds and links: a bar on a terminal, a line every few seconds in a log, nothing for short work."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TextIO

from jitlto.cli.tally import Clock, Tally

_INTERVAL = 5.0  # seconds between two lines of a log


@contextmanager
def progress(
    what: str,
    *,
    quiet: bool = False,
    stream: TextIO | None = None,
    interval: float = _INTERVAL,
    clock: Clock = time.monotonic,
) -> Iterator[Tally]:
    """Show the progress of long work.

    Args:
        what: The first word of every line, such as ``compiling``.
        quiet: Show nothing.
        stream: By default standard error. On a terminal it gets a bar, which vanishes at the end; else plain lines.
        interval: Seconds between two plain lines, and before the first.
        clock: Seconds, from any origin.

    Yields:
        Tally: To be passed to :func:`jitlto.build.pipeline.build` as its observer, or to be counted by hand:
            :meth:`Tally.started` and :meth:`Tally.finished`.
    """
    stream = stream or sys.stderr
    if quiet:
        yield Tally(clock)
    # Do not let rich decide: it takes FORCE_COLOR, which CI systems set for coloured logs, to mean a terminal.
    elif not stream.isatty() or os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        yield _Lines(what, stream, interval, clock)
    else:
        from jitlto.cli.progress_bar import Bar  # imported lazily: rich takes 70 ms, and logs do not need it

        with Bar(what, stream, clock) as bar:
            yield bar


class _Lines(Tally):
    def __init__(self, what: str, stream: TextIO, interval: float, clock: Clock) -> None:
        super().__init__(clock)
        self._what = what
        self._stream = stream
        self._interval = interval
        self._last = clock()

    def started(self, keys: Collection[object]) -> None:
        self._last = self._clock()
        super().started(keys)

    def say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def changed(self) -> None:
        now = self._clock()
        # The last fragment needs no line: the command's own summary follows.
        if now - self._last < self._interval or self.done >= self.total:
            return
        self._last = now
        count = f"{self._what}: {self.done} of {self.total}"
        print(", ".join(filter(None, [count, self.details])), file=self._stream, flush=True)
