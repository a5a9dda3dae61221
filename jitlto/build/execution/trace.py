"""The time profile of a build, as a file that Perfetto and ``chrome://tracing`` open; never stored in the database.

The format is Chrome's *Trace Event Format*: times are in microseconds, a lane for the phases and one for each worker.
"""

import json
import time
from collections.abc import Collection
from typing import Any

from jitlto.base.errors import JitltoError
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
        self._phases: list[tuple[str, float]] = []  # with their starts
        self._spans: list[Span] = []

    def phase(self, name: str) -> None:
        self._phases.append((name, time.perf_counter() - self._begin))
        self._next.phase(name)

    def started(self, keys: Collection[FragmentKey]) -> None:
        self._next.started(keys)

    def cached(self, key: FragmentKey) -> None:
        self._next.cached(key)

    def compiled(self, span: Span) -> None:
        self._spans.append(span)
        self._next.compiled(span)

    def failed(self, key: FragmentKey, error: JitltoError) -> None:
        self._next.failed(key, error)

    def to_json(self) -> str:
        """Return what was recorded up to now, which ends the last phase."""
        ends = [*(start for _, start in self._phases[1:]), time.perf_counter() - self._begin]
        phases = zip(self._phases, ends, strict=False)
        rows = [
            *((name, "phase", "phases", start, end - start) for (name, start), end in phases),
            *((str(span.key), "compile", span.worker, span.start, span.seconds) for span in self._spans),
        ]
        lanes = {lane: number for number, lane in enumerate(dict.fromkeys(lane for _, _, lane, _, _ in rows))}
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": lane}}
            for lane, number in lanes.items()
        ]
        for name, category, lane, start, seconds in rows:
            times = {"ts": round(start * 1e6), "dur": round(seconds * 1e6)}
            events.append({"ph": "X", "name": name, "cat": category, "pid": 1, "tid": lanes[lane], **times})
        return json.dumps({"traceEvents": events}, indent=1, ensure_ascii=False) + "\n"
