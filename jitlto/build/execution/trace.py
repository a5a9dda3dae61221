"""The time profile of a build, as a file that Perfetto and ``chrome://tracing`` open; never stored in the database.

The format is Chrome's *Trace Event Format*: times are in microseconds, a lane for the phases and one for each worker.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from jitlto.base import files
from jitlto.base.errors import BuildError, JitltoError
from jitlto.build.execution.events import NO_OBSERVER, Observer, Span
from jitlto.record.fragment import FragmentKey


class Trace(Observer):
    """Records the phases and compiles of a build, which begins when this is created.

    Args:
        next_observer: Receives all events too.
    """

    def __init__(self, next_observer: Observer = NO_OBSERVER) -> None:
        self._next = next_observer
        self._begin = time.perf_counter()
        self._events: list[dict[str, Any]] = []
        self._lanes: dict[str, int] = {}
        self._phase: tuple[str, float] | None = None

    def phase(self, name: str) -> None:
        self._end_phase()
        self._phase = name, time.perf_counter() - self._begin
        self._next.phase(name)

    def started(self, keys: Collection[FragmentKey]) -> None:
        self._next.started(keys)

    def cached(self, key: FragmentKey) -> None:
        self._next.cached(key)

    def compiled(self, span: Span) -> None:
        self._add(str(span.key), "compile", span.worker, span.start, span.seconds)
        self._next.compiled(span)

    def failed(self, key: FragmentKey, error: JitltoError) -> None:
        self._next.failed(key, error)

    def to_json(self) -> str:
        """Return what was recorded up to now, which ends the last phase."""
        self._end_phase()
        lanes = [
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": lane, "args": {"name": worker}}
            for worker, lane in self._lanes.items()
        ]
        return json.dumps({"traceEvents": [*lanes, *self._events]}, indent=1, ensure_ascii=False) + "\n"

    def _end_phase(self) -> None:
        if self._phase is not None:
            name, start = self._phase
            self._add(name, "phase", "phases", start, time.perf_counter() - self._begin - start)
        self._phase = None

    def _add(self, name: str, category: str, lane: str, start: float, seconds: float) -> None:
        tid = self._lanes.setdefault(lane, len(self._lanes))
        times = {"ts": round(start * 1e6), "dur": round(seconds * 1e6)}
        self._events.append({"ph": "X", "name": name, "cat": category, "pid": 1, "tid": tid, **times})


def check_writable(path: Path) -> None:
    """Check before a build that :func:`write` can write a file.

    Raises:
        BuildError: If its suffix is not ``.json``, its directory does not exist, or it cannot be written.
    """
    if path.suffix.lower() != ".json":
        what, hint = f"unknown format of timings {path.suffix!r}", "end the name with .json"
        raise BuildError(what, code="build-timings-format", where=str(path), hint=hint)
    if not path.parent.is_dir():
        what = f"the directory {path.parent} does not exist"
        raise BuildError(what, code="build-no-directory", where=str(path), hint="create it first")
    with _report_unwritable(path):
        files.check_replaceable(path)


def write(trace: Trace, path: Path) -> None:
    """Write what was recorded.

    Raises:
        BuildError: If its name does not end with .json, or it cannot be written.
    """
    check_writable(path)
    with _report_unwritable(path):
        files.write(path, trace.to_json().encode())


@contextlib.contextmanager
def _report_unwritable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        hint = files.write_hint(error, "use a path that you may write to")
        raise BuildError(what, code="build-unwritable-timings", where=str(path), hint=hint) from error
