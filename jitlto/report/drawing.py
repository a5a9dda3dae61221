"""A drawing of the calls between groups: callers to the left of what they call, and straight lines."""

from collections import Counter
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
    column = dict.fromkeys(names, 0)
    for _ in names:  # the longest path to a group, at most so long
        for caller, callee in edges:
            if caller != callee:
                column[callee] = min(max(column[callee], column[caller] + 1), len(names) - 1)
    filled: Counter[int] = Counter()
    spots: dict[str, tuple[int, int]] = {}
    for name in names:
        place = column[name]
        spots[name] = _MARGIN + place * (WIDTH + _ACROSS), _MARGIN + filled[place] * (HEIGHT + _DOWN)
        filled[place] += 1
    right, bottom = (max((spot[axis] for spot in spots.values()), default=0) for axis in (0, 1))
    ends = [(*spots[caller], *spots[callee]) for caller, callee in sorted(edges)]
    return Drawing(
        right + WIDTH + _MARGIN,
        bottom + HEIGHT + _MARGIN,
        tuple((name, *spots[name]) for name in names),
        tuple((x + WIDTH, y + HEIGHT // 2, to_x, to_y + HEIGHT // 2) for x, y, to_x, to_y in ends),
    )
