"""Recording where the time of a build went, and writing it to a file of its own, never into the database."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from jitlto.build.execution import timings_page
from jitlto.build.execution.events import Observer, Phase, Span, Timings
from jitlto.errors import BuildError
from jitlto.model.fragment import FragmentKey

_DIGITS = 6  # microseconds


class Recorder(Observer):
    """Records the timings of a build, which begins when the recorder is made.

    Args:
        clock: Seconds, from any origin.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._begin = clock()
        self._phases: list[tuple[str, float]] = []
        self._spans: list[Span] = []
        self._cached: list[FragmentKey] = []
        self._costs: Mapping[str, float] = {}

    def phase(self, name: str) -> None:
        self._phases.append((name, self._clock() - self._begin))

    def started(self, keys: Collection[FragmentKey], costs: Mapping[str, float] | None = None) -> None:  # noqa: ARG002
        self._costs = costs or {}

    def cached(self, key: FragmentKey) -> None:
        self._cached.append(key)

    def compiled(self, span: Span) -> None:
        self._spans.append(span)

    def timings(self) -> Timings:
        """The timings up to now; the last phase ends now."""
        now = self._clock() - self._begin
        ends = [start for _, start in self._phases[1:]] + [now]
        phases = tuple(Phase(name, start, end - start) for (name, start), end in zip(self._phases, ends, strict=False))
        earlier = {str(key): self._costs[str(key)] for key in self._cached if str(key) in self._costs}
        return Timings(phases, tuple(self._spans), len(self._cached), now, earlier)


def to_json(timings: Timings) -> str:
    """Return timings as JSON: totals, phases, seconds by fragment key, and every span."""
    spans = sorted(timings.spans, key=lambda span: str(span.key))
    document = {
        "total_seconds": round(timings.total_seconds, _DIGITS),
        "compiled": len(timings.spans),
        "cached": timings.cached,
        "phases": {
            name: {
                "start": round(min(p.start for p in timings.phases if p.name == name), _DIGITS),
                "seconds": round(sum(p.seconds for p in timings.phases if p.name == name), _DIGITS),
            }
            for name in dict.fromkeys(phase.name for phase in timings.phases)
        },
        "fragments": {
            key: round(seconds, _DIGITS)
            for key, seconds in sorted({**timings.earlier, **{str(s.key): s.seconds for s in spans}}.items())
        },
        "spans": [
            {
                "key": str(span.key),
                "worker": span.worker,
                "start": round(span.start, _DIGITS),
                "seconds": round(span.seconds, _DIGITS),
            }
            for span in spans
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


_WRITERS: dict[str, Callable[[Timings], str]] = {
    ".json": to_json,
    ".html": timings_page.to_html,
    ".svg": timings_page.to_svg,
}


def check_writable(path: Path) -> None:
    """Check that :func:`write` can write a file, before a build takes its time.

    Raises:
        BuildError: If its ending is not ``.json``, ``.html`` or ``.svg``, its directory does not exist, or it cannot be
            written.
    """
    if path.suffix.lower() not in _WRITERS:
        raise BuildError(
            f"unknown format of timings {path.suffix!r}",
            code="build-timings-format",
            where=str(path),
            hint="end the name with .json (for a program), .html (a page) or .svg (its plot)",
        )
    if not path.parent.is_dir():
        raise BuildError(
            f"the directory {path.parent} does not exist",
            code="build-no-directory",
            where=str(path),
            hint="create it first",
        )
    try:
        file = os.path.realpath(path)  # a link stays, wherever it leads
        exists = os.path.lexists(file)
        # Opened as it will be: permissions alone do not tell. A FIFO without a reader is an error at once.
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666))
        if not exists:
            os.unlink(file)  # noqa: PTH108 - a string
    except OSError as error:
        raise _unwritable(path, error) from error


def write(timings: Timings, path: Path) -> None:
    """Write timings in the form that the file's ending names.

    Raises:
        BuildError: As :func:`check_writable`, or if the file cannot be written.
    """
    check_writable(path)
    text = _WRITERS[path.suffix.lower()](timings)
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> BuildError:
    return BuildError(
        f"cannot be written: {error.strerror}",
        code="build-unwritable-timings",
        where=str(path),
        hint="name a file that you may write",
    )
