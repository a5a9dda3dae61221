"""Timings for a person: a plot as SVG, and a page around it that needs no network and no library."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from jitlto.build.execution.events import Phase, Span, Timings

_WIDTH, _LEFT, _RIGHT, _TOP, _LANE = 1000, 130, 65, 10, 22  # pixels; right of the plot are the phases' seconds
_GAP = 1.0  # pixels between two fragments of a worker
_NARROWEST = 3.0  # pixels; a narrower bar is drawn without a gap
_SHORTEST = 1e-6  # seconds; even an empty build has an axis
_LABEL = 18  # characters that fit before a lane


def to_svg(timings: Timings) -> str:
    """Draw a lane for each phase and for each worker over the time of the build, as an SVG document."""
    return _render("timings.svg.jinja", **_plot(timings))


def to_html(timings: Timings) -> str:
    """Write the plot, and tables of phases, groups and fragments, as a page that loads nothing."""
    return _render(
        "timings.html.jinja",
        summary=_summary(timings),
        svg=Markup(to_svg(timings)),  # noqa: S704 - escaped where it was made
        phases=[(phase.name, phase.start, phase.seconds) for phase in timings.phases],
        groups=_group_rows(timings.spans),
        fragments=[
            (str(span.key), span.worker, span.start, span.seconds)
            for span in sorted(timings.spans, key=lambda span: (-span.seconds, str(span.key)))
        ],
    )


def _render(name: str, **values: object) -> str:
    return _template(name).render(values)


@functools.cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(resources.files("jitlto.build.execution").joinpath(name).read_text("utf-8"))


def _plot(timings: Timings) -> dict[str, Any]:
    # A worker of another machine has another clock, which may run ahead of ours.
    parts: list[Phase | Span] = [*timings.phases, *timings.spans]
    end = max([timings.total_seconds, _SHORTEST, *(part.start + part.seconds for part in parts)])
    scale = (_WIDTH - _LEFT - _RIGHT) / end

    def at(seconds: float) -> float:
        return round(_LEFT + max(0.0, seconds) * scale, 2)

    lanes: list[dict[str, Any]] = []
    top = _TOP
    for name in dict.fromkeys(phase.name for phase in timings.phases):
        phases = [phase for phase in timings.phases if phase.name == name]
        bars: list[dict[str, Any]] = [
            {"title": "", "x": at(p.start), "width": round(p.seconds * scale, 2)} for p in phases
        ]
        right = max(bar["x"] + bar["width"] for bar in bars) + 5
        note = {"x": right, "text": _seconds(sum(phase.seconds for phase in phases))}
        lanes.append({"name": name, "style": "phase", "y": top, "bars": bars, "note": note})
        top += _LANE
    top += _LANE // 2 if lanes else 0
    for worker, spans in _by_worker(timings.spans).items():
        bars = [_bar(span, at) for span in spans]
        lanes.append({"name": worker, "style": "compile", "y": top, "bars": bars, "note": None})
        top += _LANE
    for lane in lanes:  # the end tells workers apart: a number
        lane["label"] = lane["name"] if len(lane["name"]) <= _LABEL else f"…{lane['name'][1 - _LABEL :]}"
    return {
        "summary": _summary(timings),
        "ticks": [{"x": at(seconds), "label": f"{seconds:g} s"} for seconds in _round_numbers(end)],
        "lanes": lanes,
        "left": _LEFT,
        "top": _TOP,
        "bottom": top,
        "width": _WIDTH,
        "height": top + 24,
    }


def _bar(span: Span, at: Callable[[float], float]) -> dict[str, Any]:
    left, right = at(span.start), at(span.start + span.seconds)
    if right - left >= _NARROWEST:
        right -= _GAP
    return {"title": f"{span.key}: {_seconds(span.seconds)}", "x": left, "width": round(right - left, 2)}


def _by_worker(spans: Sequence[Span]) -> Mapping[str, list[Span]]:
    lanes: dict[str, list[Span]] = {}
    for span in sorted(spans, key=lambda span: span.start):
        lanes.setdefault(span.worker, []).append(span)
    return lanes


def _round_numbers(end: float) -> list[float]:
    """From 0 to ``end``, five to thirteen of them."""
    power = 10.0 ** math.floor(math.log10(end / 5) + 1e-9)
    step = next(s * power for s in (5, 2, 1) if end / (s * power) >= 4.999)
    return [round(n * step, 9) for n in range(math.floor(end / step + 1e-9) + 1)]


def _summary(timings: Timings) -> str:
    spans = timings.spans
    text = f"{len(spans)} fragments compiled and {timings.cached} taken from the cache in "
    text += f"{_seconds(timings.total_seconds)}."
    if not spans:
        return text
    busy = sum(span.seconds for span in spans)
    wall = max(span.start + span.seconds for span in spans) - min(span.start for span in spans)
    count = len({span.worker for span in spans})
    workers = f"{count} workers were" if count > 1 else "One worker was"
    share = f" {100 * busy / (wall * count):.0f} % of the time" if wall > 0 else ""
    longest = max(spans, key=lambda span: span.seconds)
    return (
        f"{text} {workers} busy{share} from the first compile to the last: {_seconds(busy)} of compiling. "
        f"The longest was {longest.key} with {_seconds(longest.seconds)}."
    )


def _group_rows(spans: Sequence[Span]) -> list[tuple[str, int, float, float, float]]:
    groups: dict[str, list[float]] = {}
    for span in spans:
        groups.setdefault(f"{span.key.family}/{span.key.group}", []).append(span.seconds)
    ordered = sorted(groups.items(), key=lambda item: (-sum(item[1]), item[0]))
    return [(name, len(s), sum(s), sum(s) / len(s), max(s)) for name, s in ordered]


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.1f} ms"
