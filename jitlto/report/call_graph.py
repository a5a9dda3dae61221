"""A drawing of the calls between groups: layers from left to right, by Sugiyama's method in its simplest form.

Sugiyama, Tagawa and Toda, «Methods for Visual Understanding of Hierarchical System Structures», IEEE Transactions on
Systems, Man, and Cybernetics 11 (1981): layers by longest path, waypoints where an edge crosses a layer, and the order
within a layer by the mean place of the neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_BOX, _HIGH, _WAY = 230, 28, 8  # pixels: width and height of a box, height of a waypoint
_ACROSS, _DOWN, _MARGIN = 90, 9, 4  # pixels between layers and within one, and around all
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


_Way = tuple[str, str, int]  # where an edge crosses a layer: caller, callee, layer


def draw(names: Sequence[str], edges: Iterable[tuple[str, str]]) -> Drawing:
    """Draw a graph; an edge that closes a cycle is drawn backwards."""
    edges = sorted(set(edges))
    calls: dict[str, list[str]] = defaultdict(list)
    for caller, callee in edges:
        calls[caller].append(callee)
    layer = _layers(names, calls)
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


def _layers(names: Sequence[str], calls: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The longest way from a group that none calls, without the edges that close a cycle."""
    order: list[str] = []
    state: dict[str, int] = {}  # 1: being visited, 2: done
    forward: dict[str, list[str]] = defaultdict(list)
    called = {callee for several in calls.values() for callee in several}
    for root in sorted(names, key=lambda name: (name in called, name)):
        stack = [(root, iter(calls.get(root, ())))] if root not in state else []
        state.setdefault(root, 1)
        while stack:
            name, left = stack[-1]
            callee = next(left, None)
            if callee is None:
                state[name] = 2
                order.append(name)
                stack.pop()
                continue
            if state.get(callee) != 1:
                forward[name].append(callee)
            if callee not in state:
                state[callee] = 1
                stack.append((callee, iter(calls.get(callee, ()))))
    layer = dict.fromkeys(names, 0)
    for name in reversed(order):
        for callee in forward[name]:
            layer[callee] = max(layer[callee], layer[name] + 1)
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
    """From the right side of the first box, straight through waypoints, to the left side of the last."""
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
