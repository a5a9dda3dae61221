"""A drawing of the calls between groups: layers from left to right, by the simplest form of Sugiyama's method.

Sugiyama, Tagawa and Toda, «Methods for Visual Understanding of Hierarchical System Structures», IEEE Transactions on
Systems, Man, and Cybernetics 11 (1981): layers by longest path, waypoints where an edge crosses a layer, and order
within a layer by the mean position of the neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

_BOX, _HIGH, _WAY = 230, 28, 8  # pixels: width and height of a box, height of a waypoint
_ACROSS, _DOWN, _MARGIN = 90, 9, 4  # pixels between layers, within a layer, and around the drawing
_SWEEPS = 8


@dataclass(frozen=True, slots=True)
class Box:
    """A group's position and size in pixels."""

    name: str
    x: int
    y: int
    width: int = _BOX
    height: int = _HIGH


@dataclass(frozen=True, slots=True)
class Line:
    """A call as an SVG path."""

    caller: str
    callee: str
    path: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes and lines within ``width`` × ``height`` pixels."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


_Way = tuple[str, str, int]  # a waypoint, where an edge crosses a layer: caller, callee, layer


def draw(names: Sequence[str], edges: Iterable[tuple[str, str]]) -> Drawing:
    """Draw a graph; an edge that closes a cycle is drawn backwards."""
    edges = sorted(set(edges))
    layer = _layers(names, edges)
    rows: list[list[str | _Way]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name in names:
        rows[layer[name]].append(name)
    routes: dict[tuple[str, str], list[str | _Way]] = {}
    for caller, callee in edges:
        ways = [(caller, callee, n) for n in range(layer[caller] + 1, layer[callee])]
        for way in ways:
            rows[way[2]].append(way)
        routes[caller, callee] = [caller, *ways, callee]
    _order(rows, routes)
    heights = [sum(map(_height, row)) + _DOWN * (len(row) - 1) for row in rows]
    tallest = max(heights, default=0)
    spots: dict[str | _Way, tuple[int, int]] = {}
    for number, (row, height) in enumerate(zip(rows, heights, strict=True)):
        x, y = _MARGIN + number * (_BOX + _ACROSS), _MARGIN + (tallest - height) // 2
        for spot in row:
            spots[spot] = (x, y + _height(spot) // 2)
            y += _height(spot) + _DOWN
    boxes = tuple(Box(name, spots[name][0], spots[name][1] - _HIGH // 2) for name in names)
    lines = tuple(Line(*edge, _path([spots[spot] for spot in route])) for edge, route in routes.items())
    width = 2 * _MARGIN + max(0, len(rows) * (_BOX + _ACROSS) - _ACROSS)
    return Drawing(width, tallest + 2 * _MARGIN, boxes, lines)


def _height(spot: str | _Way) -> int:
    return _HIGH if isinstance(spot, str) else _WAY


def _layers(names: Sequence[str], edges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return each group's layer: the longest path to it, without the edges that close a cycle."""
    callers: dict[str, list[str]] = {name: [] for name in names}
    for caller, callee in edges:
        callers[callee].append(caller)
    # Groups that no other calls come first: the search for cycles starts there, so edges from them are kept.
    callers = dict(sorted(callers.items(), key=lambda item: (bool(item[1]), item[0])))
    while True:
        try:
            order = list(TopologicalSorter(callers).static_order())
            break
        except CycleError as error:
            *_, caller, callee = error.args[1]
            callers[callee].remove(caller)
    layer: dict[str, int] = {}
    for name in order:
        layer[name] = max((layer[caller] + 1 for caller in callers[name]), default=0)
    return layer


def _order(rows: list[list[str | _Way]], routes: Mapping[tuple[str, str], Sequence[str | _Way]]) -> None:
    neighbours: dict[str | _Way, list[str | _Way]] = defaultdict(list)
    for route in routes.values():
        for left, right in pairwise(route):
            neighbours[left].append(right)
            neighbours[right].append(left)
    for sweep in range(_SWEEPS):
        places = {spot: (n - (len(row) - 1) / 2) for row in rows for n, spot in enumerate(row)}
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            means = {
                spot: sum(places[each] for each in neighbours[spot]) / max(1, len(neighbours[spot])) for spot in row
            }
            row.sort(key=means.__getitem__)
            places |= {spot: (n - (len(row) - 1) / 2) for n, spot in enumerate(row)}


def _path(spots: Sequence[tuple[int, int]]) -> str:
    """Return a path from the right side of the first box, straight through waypoints, to the left side of the last."""
    x, y = spots[0][0] + _BOX, spots[0][1]
    parts = [f"M{x} {y}"]
    for number, (left, to) in enumerate(spots[1:], 1):
        bend = max(40, abs(left - x) // 2)
        parts.append(f"C{x + bend} {y} {left - bend} {to} {left} {to}")
        x, y = left, to
        if number < len(spots) - 1:
            x += _BOX
            parts.append(f"H{x}")
    return "".join(parts)
