"""A drawing of the calls between groups: callers to the left of what they call, and straight lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 230, 28  # pixels of a box
_ACROSS, _DOWN, _MARGIN = 90, 12, 4  # pixels between columns, within one, and around the drawing


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes as name, x and y, and lines as x and y of both ends, within ``width`` × ``height`` pixels."""

    width: int
    height: int
    boxes: tuple[tuple[str, int, int], ...]
    lines: tuple[tuple[int, int, int, int], ...]


def draw(names: Sequence[str], edges: Collection[tuple[str, str]]) -> Drawing:
    """Draw a graph; where calls go round in a circle, a callee may be left of a caller."""
    layer = dict.fromkeys(names, 0)
    for _ in names:  # the longest path to a group, at most so long
        for caller, callee in edges:
            if caller != callee:
                layer[callee] = min(max(layer[callee], layer[caller] + 1), len(names) - 1)
    columns: dict[int, list[str]] = defaultdict(list)
    for name in names:
        columns[layer[name]].append(name)
    tallest = max(map(len, columns.values()), default=0)
    spots: dict[str, tuple[int, int]] = {}
    for place, number in enumerate(sorted(columns)):
        top = (tallest - len(columns[number])) * (HEIGHT + _DOWN) // 2
        for row, name in enumerate(columns[number]):
            spots[name] = (_MARGIN + place * (WIDTH + _ACROSS), _MARGIN + top + row * (HEIGHT + _DOWN))
    lines = [(*spots[caller], *spots[callee]) for caller, callee in sorted(edges)]
    return Drawing(
        2 * _MARGIN + len(columns) * (WIDTH + _ACROSS) - _ACROSS,
        2 * _MARGIN + tallest * (HEIGHT + _DOWN) - _DOWN,
        tuple((name, *spots[name]) for name in names),
        tuple((x + WIDTH, y + HEIGHT // 2, to_x, to_y + HEIGHT // 2) for x, y, to_x, to_y in lines),
    )
