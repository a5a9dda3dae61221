"""The time profile of a build: recorded, and written as JSON, SVG or HTML; never stored in the database.

The templates beside this module define the plot and the page, which loads nothing.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from jitlto.base import files
from jitlto.base.errors import BuildError, JitltoError
from jitlto.build.execution.events import NO_OBSERVER, Observer, Span
from jitlto.record.fragment import FragmentKey

if TYPE_CHECKING:
    import jinja2

_DIGITS = 6  # microseconds
_SHORTEST = 1e-6  # seconds of the time axis, even of an empty build


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a build; times are in seconds from the start of the build. Phases may share a name."""

    name: str
    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Timings:
    """The time profile of a build; times are in seconds."""

    phases: tuple[Phase, ...]
    spans: tuple[Span, ...]  # one per compiled fragment, in the order of their ends
    cached: int  # number of fragments that needed no compile
    total_seconds: float
    earlier: Mapping[str, float] = field(default_factory=dict)  # known compile times of the cached ones, by key


class Recorder(Observer):
    """Records the timings of a build, which begins when the recorder is created.

    Args:
        clock: Returns seconds, from any origin.
        next_observer: Receives all events too.
    """

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, *, next_observer: Observer = NO_OBSERVER
    ) -> None:
        self._clock = clock
        self._next = next_observer
        self._begin = clock()
        self._phases: list[tuple[str, float]] = []
        self._spans: list[Span] = []
        self._cached: list[str] = []
        self._costs: Mapping[str, float] = {}

    def phase(self, name: str) -> None:
        self._phases.append((name, self._clock() - self._begin))
        self._next.phase(name)

    def started(self, keys: Collection[FragmentKey], costs: Mapping[str, float] | None = None) -> None:
        self._costs = costs or {}
        self._next.started(keys, costs)

    def cached(self, key: FragmentKey) -> None:
        self._cached.append(str(key))
        self._next.cached(key)

    def compiled(self, span: Span) -> None:
        self._spans.append(span)
        self._next.compiled(span)

    def failed(self, key: FragmentKey, error: JitltoError) -> None:
        self._next.failed(key, error)

    def timings(self) -> Timings:
        """Return the timings up to now, which ends the last phase."""
        now = self._clock() - self._begin
        ends = [start for _, start in self._phases[1:]] + [now]
        phases = tuple(Phase(name, start, end - start) for (name, start), end in zip(self._phases, ends, strict=False))
        earlier = {key: self._costs[key] for key in self._cached if key in self._costs}
        return Timings(phases, tuple(self._spans), len(self._cached), now, earlier)


def to_json(timings: Timings) -> str:
    """Return timings as JSON: totals, phases, seconds by fragment key, and every span."""
    spans = [
        {"key": str(s.key), "worker": s.worker, "start": round(s.start, _DIGITS), "seconds": round(s.seconds, _DIGITS)}
        for s in sorted(timings.spans, key=lambda span: str(span.key))
    ]
    phases = {
        name: {
            "start": round(min(phase.start for phase in several), _DIGITS),
            "seconds": round(sum(phase.seconds for phase in several), _DIGITS),
        }
        for name, several in _phases_by_name(timings).items()
    }
    seconds = {**timings.earlier, **{str(span.key): span.seconds for span in timings.spans}}
    document = {
        "total_seconds": round(timings.total_seconds, _DIGITS),
        "compiled": len(spans),
        "cached": timings.cached,
        "phases": phases,
        "fragments": {key: round(value, _DIGITS) for key, value in sorted(seconds.items())},
        "spans": spans,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def to_svg(timings: Timings) -> str:
    """Return an SVG document with a lane for each phase and each worker over the time of the build."""
    workers = defaultdict(list)
    for span in sorted(timings.spans, key=lambda span: span.start):
        bar = f"{span.key}: {_format_seconds(span.seconds)}", span.start, span.start + span.seconds
        workers[span.worker].append(bar)
    phases = [
        (name, [("", p.start, p.start + p.seconds) for p in several], _format_seconds(sum(p.seconds for p in several)))
        for name, several in _phases_by_name(timings).items()
    ]
    # The clock of a different machine may run ahead of ours.
    parts: list[Phase | Span] = [*timings.phases, *timings.spans]
    end = max([timings.total_seconds, _SHORTEST, *(part.start + part.seconds for part in parts)])
    return _template("timings.svg.jinja").render(
        summary=_summarize(timings), end=end, ticks=_round_numbers(end), phases=phases, workers=list(workers.items())
    )


def to_html(timings: Timings) -> str:
    """Return an HTML page that loads nothing, with the plot and tables of phases, groups and fragments."""
    groups = defaultdict(list)
    for span in timings.spans:
        groups[f"{span.key.family}/{span.key.group}"].append(span.seconds)
    rows = [(name, len(s), sum(s), sum(s) / len(s), max(s)) for name, s in groups.items()]
    spans = sorted(timings.spans, key=lambda span: (-span.seconds, str(span.key)))
    return _template("timings.html.jinja").render(
        summary=_summarize(timings),
        svg=to_svg(timings),
        phases=[(phase.name, phase.start, phase.seconds) for phase in timings.phases],
        groups=sorted(rows, key=lambda row: (-row[2], row[0])),
        fragments=[(str(span.key), span.worker, span.start, span.seconds) for span in spans],
    )


@functools.cache
def _template(name: str) -> jinja2.Template:
    import jinja2  # takes a tenth of a second, and most builds write no profile

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(resources.files("jitlto.build.execution").joinpath(name).read_text("utf-8"))


def _phases_by_name(timings: Timings) -> dict[str, list[Phase]]:
    phases = defaultdict(list)
    for phase in timings.phases:
        phases[phase.name].append(phase)
    return phases


def _round_numbers(end: float) -> list[float]:
    """Return five to thirteen round numbers from 0 to ``end``."""
    power = 10.0 ** math.floor(math.log10(end / 5) + 1e-9)
    step = next(s * power for s in (5, 2, 1) if end / (s * power) >= 4.999)
    return [round(n * step, 9) for n in range(math.floor(end / step + 1e-9) + 1)]


def _summarize(timings: Timings) -> str:
    spans = timings.spans
    total = _format_seconds(timings.total_seconds)
    text = f"{len(spans)} fragments compiled and {timings.cached} taken from the cache in {total}."
    if not spans:
        return text
    busy = sum(span.seconds for span in spans)
    wall = max(span.start + span.seconds for span in spans) - min(span.start for span in spans)
    count = len({span.worker for span in spans})
    workers = f"{count} workers were" if count > 1 else "One worker was"
    share = f" {100 * busy / (wall * count):.0f} % of the time" if wall > 0 else ""
    longest = max(spans, key=lambda span: span.seconds)
    return (
        f"{text} {workers} busy{share} from the first compile to the last: {_format_seconds(busy)} of compiling. "
        f"The longest was {longest.key} with {_format_seconds(longest.seconds)}."
    )


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.1f} ms"


_WRITERS: dict[str, Callable[[Timings], str]] = {".json": to_json, ".html": to_html, ".svg": to_svg}


def check_writable(path: Path) -> None:
    """Check before a build that :func:`write` can write a file.

    Raises:
        BuildError: If its suffix is not ``.json``, ``.html`` or ``.svg``, its directory does not exist, or it cannot be
            written.
    """
    if path.suffix.lower() not in _WRITERS:
        what = f"unknown format of timings {path.suffix!r}"
        hint = "end the name with .json (for programs), .html (a page) or .svg (a plot)"
        raise BuildError(what, code="build-timings-format", where=str(path), hint=hint)
    if not path.parent.is_dir():
        what = f"the directory {path.parent} does not exist"
        raise BuildError(what, code="build-no-directory", where=str(path), hint="create it first")
    with _report_unwritable(path):
        files.check_replaceable(path)


def write(timings: Timings, path: Path) -> None:
    """Write timings in the format of the file's suffix.

    Raises:
        BuildError: As :func:`check_writable`.
    """
    check_writable(path)
    text = _WRITERS[path.suffix.lower()](timings)
    with _report_unwritable(path):
        files.write(path, text.encode())


@contextlib.contextmanager
def _report_unwritable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        hint = files.write_hint(error, "use a path that you may write to")
        raise BuildError(what, code="build-unwritable-timings", where=str(path), hint=hint) from error
