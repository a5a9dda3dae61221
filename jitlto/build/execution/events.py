"""The events of a build: who receives them, and the time profile that is made of them."""

import json
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from jitlto.base.errors import JitltoError
from jitlto.record.fragment import FragmentKey


@dataclass(frozen=True, slots=True)
class Span:
    """The worker, start and duration of one fragment's compile."""

    key: FragmentKey
    worker: str  # host and process
    start: float  # seconds from the start of the build
    seconds: float  # of wall time


class Observer:
    """Receives the events of a build, which begins when this is created, in one thread; override what is needed."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._phases: list[tuple[str, float]] = []  # with their starts
        self._spans: list[Span] = []

    def phase(self, name: str) -> None:
        """The phase ``name`` begins, and the previous phase ends."""
        self._phases.append((name, time.perf_counter() - self._begin))

    def started(self, keys: Collection[FragmentKey]) -> None:
        """Fragments are rendered; one call of :meth:`cached`, :meth:`compiled` or :meth:`failed` follows for each key.

        Called for one family after another, while earlier ones are compiled.
        """

    def cached(self, key: FragmentKey) -> None:
        """A fragment needs no compile: it is in the build cache, or a different fragment has the same source."""

    def compiled(self, span: Span) -> None:
        """A fragment was compiled."""
        self._spans.append(span)

    def failed(self, key: FragmentKey, error: JitltoError) -> None:
        """A fragment failed to compile."""

    def profile(self) -> str:
        """Return what happened up to now, which ends the last phase, for Perfetto and ``chrome://tracing``.

        The format is Chrome's *Trace Event Format*: times are in microseconds, a lane for the phases and one for each
        worker.
        """
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
