"""Plots as SVG text: bars in groups, readable on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

# Told apart by the colour-blind too; for light and for dark pages, as in the plots of builds.
_PALETTE = (
    ("#0969da", "#4493f8"), ("#d1741a", "#f0a04b"), ("#1a8f7a", "#3fc1a8"), ("#8250df", "#b48cf2"),
    ("#bf3989", "#f778ba"), ("#7a6a00", "#d4bf3a"), ("#57606a", "#9198a1"), ("#a40e26", "#ff7b72"),
)  # fmt: skip
_WIDTH, _RIGHT, _TOP, _BAR = 900, 90, 64, 15  # pixels
_CHARACTER = 6.7  # pixels, on the average


@dataclass(frozen=True)
class Value:
    """One figure of a plot, with the ends of its spread."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, summary: dict[str, Any]) -> Value:
        """From a median and quartiles."""
        return cls(summary["median"], *summary["quartiles"])

    @classmethod
    def faster(cls, summaries: Mapping[str, Any], ours: str, theirs: str) -> Value:
        """How many times as fast as another: the spread is theirs over our median, and ours the other way round."""
        own, other = summaries[ours], summaries[theirs]
        (fast, slow), (own_fast, own_slow) = other["quartiles"], own["quartiles"]
        return cls(other["median"] / own["median"], fast / own_slow, slow / own_fast)

    @classmethod
    def certain(cls, value: float) -> Value:
        """Without a spread."""
        return cls(value, value, value)


@dataclass(frozen=True)
class Group:
    """Bars that stand together: a value, or None, for each of the series."""

    name: str
    values: Sequence[Value | None]


def bars(
    title: str,
    series: Sequence[str],
    groups: Sequence[Group],
    unit: str,
    *,
    logarithmic: bool = False,
    reference: float | None = None,
) -> str:
    """Horizontal bars in groups, each with its spread and its value.

    Parameters
    ----------
    title : str
    series : sequence of str
        What the bars of a group are.
    groups : sequence of Group
    unit : str
        Of the axis.
    logarithmic : bool
        The axis is.
    reference : float, optional
        A value that is marked.
    """
    left = 20 + _CHARACTER * max(len(group.name) for group in groups)
    every = [value for group in groups for value in group.values if value]
    axis = _Axis.over([v.middle for v in every] + [v.high for v in every] + ([reference] if reference else []),
                      left, _WIDTH - _RIGHT, logarithmic)  # fmt: skip
    top = _TOP + _legend_rows(series) * 20
    shapes, y = [], float(top)
    for group in groups:
        present = [(n, value) for n, value in enumerate(group.values) if value]
        centre = y + len(present) * _BAR / 2
        shapes.append(
            f'<text class="text" x="{left - 8:.1f}" y="{centre + 4:.1f}" text-anchor="end">{escape(group.name)}</text>'
        )
        for n, value in present:
            end, low, high = axis.at(value.middle), axis.at(value.low), axis.at(value.high)
            name = f"{group.name}, {series[n]}: {_number(value.middle)} {unit}"
            size, middle = f'width="{max(end - left, 0.5):.1f}" height="{_BAR - 3}"', f"{y + _BAR / 2:.1f}"
            rectangle = f'<rect class="c{n}" x="{left:.1f}" y="{y + 1:.1f}" {size}><title>{escape(name)}</title></rect>'
            spread = f'<line class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>'
            place = f'x="{max(end, high) + 5:.1f}" y="{y + 11:.1f}"'
            label = f'<text class="soft" {place} font-size="10">{_number(value.middle)}</text>'
            shapes += [rectangle, spread, label]
            y += _BAR
        y += 9
    grid = [_vertical(axis.at(tick), top, y, _number(tick), "grid") for tick in axis.ticks()]
    if reference is not None:
        grid.append(_vertical(axis.at(reference), top, y, "", "mark"))
    return _document(title, [*grid, *_legend(series), *shapes], y + 42, unit, left)


def points(title: str, at: Sequence[float], series: Mapping[str, Sequence[float]], unit: str, mark: float) -> str:
    """Points over time, on a logarithmic scale.

    Parameters
    ----------
    title : str
    at : sequence of float
        When each was.
    series : mapping
    unit : str
        Of the time.
    mark : float
        A time that is marked.
    """
    left, top, bottom = 60.0, float(_TOP + 10), 380.0
    across = _Axis.over([max(at)], left, _WIDTH - 20, False)
    up = _Axis.over([value for values in series.values() for value in values], bottom, top, True)
    shapes = [_vertical(across.at(tick), top, bottom, _number(tick), "grid") for tick in across.ticks()]
    for tick in up.ticks():
        y = f"{up.at(tick):.1f}"
        shapes.append(f'<line class="grid" x1="{left}" x2="{_WIDTH - 20}" y1="{y}" y2="{y}"/>')
        shapes.append(
            f'<text class="soft" x="{left - 8}" y="{y}" text-anchor="end" font-size="10">{_number(tick)}</text>'
        )
    for n, values in enumerate(series.values()):
        places = "".join(f"M{across.at(t):.0f} {up.at(v):.1f}h0" for t, v in zip(at, values, strict=True))
        shapes.append(f'<path class="p{n}" d="{places}" fill="none" stroke-width="2" stroke-linecap="round"/>')
    shapes.append(_vertical(across.at(mark), top, bottom, "", "mark"))
    return _document(title, [*_legend(list(series)), *shapes], bottom + 42, unit, left)


@dataclass(frozen=True)
class _Axis:
    """Values to pixels, from zero; or from a power of ten, where it is logarithmic."""

    begin: float
    end: float
    first: float
    last: float
    logarithmic: bool

    @classmethod
    def over(cls, values: Sequence[float], begin: float, end: float, logarithmic: bool) -> _Axis:
        high = max([value for value in values if math.isfinite(value)], default=1.0) or 1.0
        low = min((value for value in values if value > 0), default=high / 10)
        if not logarithmic:
            return cls(begin, end, 0.0, 1.05 * high, False)
        # A bar has some length even for the smallest value.
        return cls(begin, end, math.floor(math.log10(low) - 0.1), math.log10(1.1 * high), True)

    def at(self, value: float) -> float:
        shown = math.log10(max(value, 1e-300)) if self.logarithmic else value
        share = (shown - self.first) / (self.last - self.first)
        return self.begin + min(max(share, 0.0), 1.0) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        if self.logarithmic:
            return [10.0**n for n in range(math.ceil(self.first), math.floor(self.last) + 1)]
        power = 10.0 ** math.floor(math.log10(self.last / 4))
        step = next(s * power for s in (10, 5, 2, 1) if self.last / (s * power) >= 3.5 or s == 1)
        return [n * step for n in range(math.floor(self.last / step) + 1)]


def _vertical(x: float, top: float, bottom: float, label: str, style: str) -> str:
    line = f'<line class="{style}" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'
    return line + (
        f'<text class="soft" x="{x:.1f}" y="{bottom + 15:.1f}" text-anchor="middle">{label}</text>' if label else ""
    )


def _rows(series: Sequence[str]) -> list[tuple[int, float, int]]:
    """Of each entry of the legend: its number, its x, its row."""
    placed, x, row = [], 20.0, 0
    for n, name in enumerate(series):
        width = 34 + _CHARACTER * len(name)
        if x + width > _WIDTH and x > 20.0:
            x, row = 20.0, row + 1
        placed.append((n, x, row))
        x += width
    return placed


def _legend_rows(series: Sequence[str]) -> int:
    return _rows(series)[-1][2]


def _legend(series: Sequence[str]) -> list[str]:
    return [
        f'<rect class="c{n}" x="{x:.1f}" y="{36 + 20 * row}" width="12" height="12" rx="2"/>'
        f'<text class="text" x="{x + 17:.1f}" y="{46 + 20 * row}">{escape(series[n])}</text>'
        for n, x, row in _rows(series)
    ]


def _document(title: str, shapes: Sequence[str], height: float, unit: str, left: float) -> str:
    def colours(dark: bool) -> str:
        of_points = (f".p{n} {{ stroke: {pair[dark]} }}" for n, pair in enumerate(_PALETTE))
        return " ".join([*(f".c{n} {{ fill: {pair[dark]} }}" for n, pair in enumerate(_PALETTE)), *of_points])

    body = "\n".join(shapes)
    size = f'viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" height="{height:.0f}"'
    style = 'font-family="system-ui, sans-serif" font-size="12"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="plot-title" {style}>
<title id="plot-title">{escape(title)}</title>
<style>
.text {{ fill: #1f2328 }} .soft {{ fill: #59636e }} .grid {{ stroke: #d1d9e0 }}
.mark {{ stroke: #1f2328; stroke-dasharray: 4 3 }} .spread {{ stroke: #1f2328; stroke-width: 1.5 }} {colours(False)}
@media (prefers-color-scheme: dark) {{
.text {{ fill: #f0f6fc }} .soft {{ fill: #9198a1 }} .grid {{ stroke: #3d444d }} .mark {{ stroke: #f0f6fc }}
.spread {{ stroke: #f0f6fc }} {colours(True)}
}}
</style>
<text class="text" x="20" y="22" font-size="14" font-weight="600">{escape(title)}</text>
{body}
<text class="soft" x="{left:.1f}" y="{height - 8:.1f}">{escape(unit)}</text>
</svg>
"""


def _number(value: float) -> str:
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
