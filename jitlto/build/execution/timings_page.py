"""Timings for a person: a plot as SVG, and a page around it that needs no network and no library."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

import jinja2
from markupsafe import Markup

from jitlto.build.execution.events import Span, Timings

_WIDTH, _LEFT, _RIGHT, _TOP, _LANE = 1000, 130, 65, 30, 22  # pixels; right of the plot stand the phases' seconds
_GAP = 1.0  # pixels between two fragments of a worker
_NARROWEST = 3.0  # pixels; a narrower bar is drawn in one piece and without a gap
_SHORTEST = 1e-6  # seconds; even an empty build has an axis
_LABEL = 18  # characters that fit before a lane
# Steps in the order in which they first occur, for light and for dark pages; told apart by the colour-blind too.
_PALETTE = (
    ("#0969da", "#4493f8"), ("#d1741a", "#f0a04b"), ("#1a8f7a", "#3fc1a8"), ("#8250df", "#b48cf2"),
    ("#bf3989", "#f778ba"), ("#7a6a00", "#d4bf3a"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Box:
    style: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class _Bar:
    title: str
    boxes: tuple[_Box, ...]


@dataclass(frozen=True, slots=True)
class _Lane:
    full: str
    y: int
    bars: tuple[_Bar, ...]
    note: str = ""
    note_x: float = 0.0

    @property
    def label(self) -> str:
        """The end tells workers apart: a number."""
        return self.full if len(self.full) <= _LABEL else f"…{self.full[1 - _LABEL :]}"


@dataclass(frozen=True, slots=True)
class _Tick:
    x: float
    label: str


@dataclass(frozen=True, slots=True)
class _Legend:
    style: str
    x: int
    name: str


@dataclass(frozen=True, slots=True)
class _Plot:
    summary: str
    legend: tuple[_Legend, ...]
    ticks: tuple[_Tick, ...]
    lanes: tuple[_Lane, ...]
    left: int = _LEFT
    top: int = _TOP
    width: int = _WIDTH

    @property
    def bottom(self) -> int:
        return max((lane.y + _LANE for lane in self.lanes), default=self.top)

    @property
    def height(self) -> int:
        return self.bottom + 24


@dataclass(frozen=True, slots=True)
class _Table:
    head: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[str | int | float | None, ...], ...]


def to_svg(timings: Timings) -> str:
    """A lane for each phase and for each worker over the time of the build, as an SVG document."""
    return _render("timings.svg.jinja", plot=_plot(timings), palette=_PALETTE)


def to_html(timings: Timings) -> str:
    """The plot, and tables of phases, groups and fragments, as a page that loads nothing."""
    return _render(
        "timings.html.jinja",
        plot=_plot(timings),
        svg=Markup(to_svg(timings)),  # noqa: S704 - escaped where it was made
        phases=_Table(
            (("phase", False), ("begin", True), ("seconds", True)),
            tuple((phase.name, phase.start, phase.seconds) for phase in timings.phases),
        ),
        groups=_groups(timings.spans),
        fragments=_fragments(timings.spans),
    )


def _render(name: str, **values: object) -> str:
    return _template(name).render(values)


@functools.cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(resources.files("jitlto.build.execution").joinpath(name).read_text("utf-8"))


def _plot(timings: Timings) -> _Plot:
    # A worker of another machine has another clock, which may run ahead of ours.
    end = max(
        [timings.total_seconds, _SHORTEST, *(part.start + part.seconds for part in timings.phases + timings.spans)]
    )
    scale = (_WIDTH - _LEFT - _RIGHT) / end

    def at(seconds: float) -> float:
        return round(_LEFT + max(0.0, seconds) * scale, 2)

    lanes: list[_Lane] = []
    for name in dict.fromkeys(phase.name for phase in timings.phases):
        spells = [phase for phase in timings.phases if phase.name == name]
        boxes = tuple(_Box("phase", at(p.start), round(p.seconds * scale, 2)) for p in spells)
        note = _seconds(sum(p.seconds for p in spells))
        lanes.append(
            _Lane(name, _TOP + _LANE * len(lanes), (_Bar("", boxes),), note, boxes[-1].x + boxes[-1].width + 5)
        )
    styles = {step: f"step{n}" if n < len(_PALETTE) else "other" for n, step in enumerate(_steps(timings.spans))}
    top = _TOP + _LANE * len(lanes) + (_LANE // 2 if lanes else 0)
    by_worker: dict[str, list[Span]] = {}
    for span in sorted(timings.spans, key=lambda span: span.start):
        by_worker.setdefault(span.worker, []).append(span)
    for worker, spans in by_worker.items():
        bars = tuple(_bar(span, at, styles) for span in spans)
        lanes.append(_Lane(worker, top, bars))
        top += _LANE
    ticks = tuple(_Tick(at(seconds), f"{seconds:g} s") for seconds in _round_numbers(end))
    return _Plot(_summary(timings, by_worker), _legend(styles), ticks, tuple(lanes))


def _bar(span: Span, at: Callable[[float], float], styles: dict[str, str]) -> _Bar:
    left, right = at(span.start), at(span.start + span.seconds)
    boxes = []
    if right - left >= _NARROWEST:
        right -= _GAP
        position = span.start
        for step, seconds in span.steps.items():
            begin, end = min(at(position), right), min(at(position + seconds), right)
            boxes.append(_Box(styles[step], begin, round(end - begin, 2)))
            position += seconds
    detail = ", ".join(f"{step} {_seconds(seconds)}" for step, seconds in span.steps.items())
    title = f"{span.key}: {_seconds(span.seconds)}"
    return _Bar(f"{title} ({detail})" if detail else title, (_Box("other", left, round(right - left, 2)), *boxes))


def _steps(spans: Iterable[Span]) -> list[str]:
    return list(dict.fromkeys(step for span in spans for step in span.steps))


def _legend(styles: dict[str, str]) -> tuple[_Legend, ...]:
    entries, x = [], _LEFT
    shown = {style: name for name, style in styles.items() if style != "other"}
    for style, name in [*shown.items(), ("other", "other" if shown else "compile")]:
        entries.append(_Legend(style, x, name))
        x += 34 + 7 * len(name)
    return tuple(entries)


def _round_numbers(end: float) -> list[float]:
    """From 0 to ``end``, five to thirteen of them."""
    power = 10.0 ** math.floor(math.log10(end / 5) + 1e-9)
    step = next(s * power for s in (5, 2, 1) if end / (s * power) >= 4.999)
    return [round(n * step, 9) for n in range(math.floor(end / step + 1e-9) + 1)]


def _summary(timings: Timings, by_worker: dict[str, list[Span]]) -> str:
    count, cached = len(timings.spans), timings.cached
    text = f"{count} fragments compiled and {cached} taken from the cache in {_seconds(timings.total_seconds)}."
    if not timings.spans:
        return text
    busy = sum(span.seconds for span in timings.spans)
    begin = min(span.start for span in timings.spans)
    wall = max(span.start + span.seconds for span in timings.spans) - begin
    workers = f"{len(by_worker)} workers were" if len(by_worker) > 1 else "One worker was"
    share = f" {100 * busy / (wall * len(by_worker)):.0f} % of the time" if wall > 0 else ""
    longest = max(timings.spans, key=lambda span: span.seconds)
    return (
        f"{text} {workers} busy{share} from the first compile to the last: {_seconds(busy)} of compiling. "
        f"The longest was {longest.key} with {_seconds(longest.seconds)}."
    )


def _groups(spans: Sequence[Span]) -> _Table:
    by_group: dict[str, list[float]] = {}
    for span in spans:
        by_group.setdefault(f"{span.key.family}/{span.key.group}", []).append(span.seconds)
    ordered = sorted(by_group.items(), key=lambda item: (-sum(item[1]), item[0]))
    head = (("group", False), ("compiled", True), ("seconds", True), ("mean", True), ("longest", True))
    return _Table(head, tuple((name, len(s), sum(s), sum(s) / len(s), max(s)) for name, s in ordered))


def _fragments(spans: Sequence[Span]) -> _Table:
    steps = _steps(spans)
    rows = tuple(
        (str(span.key), span.worker, span.start, span.seconds, *(span.steps.get(step) for step in steps))
        for span in sorted(spans, key=lambda span: (-span.seconds, str(span.key)))
    )
    head = (("fragment", False), ("worker", False), ("begin", True), ("seconds", True))
    return _Table((*head, *((step, True) for step in steps)), rows)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.1f} ms"
