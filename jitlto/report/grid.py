"""A group's product as a table: dimensions stacked on two axes, with a cell for each combination.

Dimensions that depend on each other share an axis where possible, so that excluded combinations fill whole rows. In a
large product, adjacent empty rows are drawn as one row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, groupby, product
from math import log, prod

from jitlto.report.coverage import Cell, Coverage, Follows, Never

_DRAWN_WHOLE = 100  # cells; a product up to this size is drawn with all its rows
_MOST_CELLS = 20_000  # a larger table is not drawn
_MOST_COLUMNS = 48
_MOST_HOLES = 2_000
_MOST_VARYING = 20  # dimensions
_MOST_DIMENSIONS = 10  # whose splits are all tried
_ASPECT = 2.5  # the best number of columns for each row: cells are about square, pages wider than high


class State(StrEnum):
    """The state of a cell."""

    EXISTS = "exists"
    #: In a different part of the build, or left out by a merge.
    APART = "apart"
    #: Excluded by a rule: two of its values never occur together.
    MISSING = "missing"
    #: Missing, and excluded by no rule.
    HOLE = "hole"
    #: Missing, as the family declares.
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class Head:
    """A value on an axis that spans some rows or columns."""

    value: str
    span: int


@dataclass(frozen=True, slots=True)
class Row:
    """A row: the heads that begin in it, outermost first, its values and its cells; or ``omitted`` empty rows."""

    heads: tuple[Head, ...]
    at: tuple[tuple[str, str], ...] = ()
    cells: tuple[tuple[State, Cell], ...] = ()
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class Grid:
    """A drawn product.

    Args:
        row_names, column_names: The dimensions of each axis, outermost first.
        column_heads: The heads of each column dimension.
        column_at: For each column, the name and value of each column dimension.
        rows: From top to bottom.
    """

    row_names: tuple[str, ...]
    column_names: tuple[str, ...]
    column_heads: tuple[tuple[Head, ...], ...]
    column_at: tuple[tuple[tuple[str, str], ...], ...]
    rows: tuple[Row, ...]

    @property
    def width(self) -> int:
        return len(self.column_at)


def draw(coverage: Coverage, present: Collection[Cell], apart: Collection[Cell] = ()) -> Grid | None:
    """Lay out a product; None if it has fewer than two dimensions or too many cells."""
    if not 2 <= len(coverage.varying) <= _MOST_VARYING:
        return None
    across = _split(coverage)
    down = tuple(n for n in coverage.varying if n not in across)
    # Columns: the dimension with the most values innermost, because long runs are easier to read. Rows: the author's
    # order, in which followers come after the dimension that determines them.
    across = tuple(sorted(across, key=lambda n: len(coverage.dimensions[n].values)))
    values = [dimension.values for dimension in coverage.dimensions]
    places = {n: {value: place for place, value in enumerate(values[n])} for n in down}
    columns = list(product(*(values[n] for n in across)))
    states = dict.fromkeys((coverage.excluded or ())[:_MOST_HOLES], State.EXCLUDED)
    states |= dict.fromkeys((coverage.holes or ())[:_MOST_HOLES], State.HOLE)
    states |= dict.fromkeys(apart, State.APART) | dict.fromkeys(present, State.EXISTS)
    if coverage.product <= _DRAWN_WHOLE:
        lines = list(product(*(values[n] for n in down)))
    else:
        lines = sorted(
            {tuple(cell[n] for n in down) for cell in states},
            key=lambda line: [places[n][value] for n, value in zip(down, line, strict=True)],
        )
    if len(lines) * len(columns) > _MOST_CELLS:
        return None

    def cells(line: Cell) -> tuple[tuple[State, Cell], ...]:
        cell = [dimension.values[0] for dimension in coverage.dimensions]
        for n, value in zip(down, line, strict=True):
            cell[n] = value
        found = []
        for column in columns:
            for n, value in zip(across, column, strict=True):
                cell[n] = value
            found.append((states.get(tuple(cell), State.MISSING), tuple(cell)))
        return tuple(found)

    down_names, across_names = (tuple(coverage.dimensions[n].name for n in axis) for axis in (down, across))
    each = prod(len(values[n]) for n in down[1:])  # rows of each value of the outermost dimension
    blocks: dict[str, list[Cell]] = {outermost: [] for outermost in values[down[0]]}
    for line in lines:
        blocks[line[0]].append(line)
    rows: list[Row] = []
    for block in blocks.values():
        omitted = each - len(block)
        heads = _heads(block, bool(omitted))
        rows += [
            Row(tuple(row_heads), tuple(zip(down_names, line, strict=True)), cells(line))
            for line, row_heads in zip(block, heads, strict=True)
        ]
        rows += [Row((), omitted=omitted)] * bool(omitted)
    column_heads = tuple(_column_heads([values[n] for n in across]))
    column_at = tuple(tuple(zip(across_names, column, strict=True)) for column in columns)
    return Grid(down_names, across_names, column_heads, column_at, tuple(rows))


def _split(coverage: Coverage) -> tuple[int, ...]:
    """Return the dimensions for the columns: they separate few dependent pairs and come close to a page's shape."""
    sizes: Mapping[int, int] = {n: len(coverage.dimensions[n].values) for n in coverage.varying}
    place = {dimension.name: n for n, dimension in enumerate(coverage.dimensions)}
    tied = [(place[rule.name], place[rule.other]) for rule in coverage.rules]
    weighed = sorted(sizes, key=lambda n: (sizes[n], n))[:_MOST_DIMENSIONS]
    known = coverage.exist + coverage.apart

    def cost(across: Sequence[int]) -> tuple[float, tuple[int, ...]]:
        columns = prod(sizes[n] for n in across)
        down = [n for n in sizes if n not in across]
        rows = min(known, _rows(down, sizes, coverage))
        cut = len({pair for pair in tied if (pair[0] in across) != (pair[1] in across)})
        too_wide = 10 * max(0.0, log(columns / _MOST_COLUMNS))
        return too_wide + 1.5 * cut + abs(log(columns / rows / _ASPECT)), tuple(across)

    splits = (
        across for count in range(1, len(sizes)) for across in combinations(weighed, count) if len(across) < len(sizes)
    )
    return min(map(cost, splits))[1]


def _rows(down: Sequence[int], sizes: Mapping[int, int], coverage: Coverage) -> int:
    """Estimate the number of rows that are not empty: followers add no rows, and a half-empty pair halves them."""
    names = {coverage.dimensions[n].name: n for n in down}
    rows = float(prod(sizes[n] for n in down))
    for rule in coverage.rules:
        if rule.name in names and rule.other in names:
            if isinstance(rule, Follows):
                rows /= sizes[names[rule.other]]
            elif isinstance(rule, Never):
                rows *= 1 - len(rule.values) / (sizes[names[rule.name]] * sizes[names[rule.other]])
    return max(1, round(rows))


def _heads(block: Sequence[Cell], more: bool) -> list[list[Head]]:
    """Return the heads that begin in each row of a block; the outermost also spans the row of omitted ones, if any."""
    heads: list[list[Head]] = [[] for _ in block]
    for level in range(len(block[0]) if block else 0):
        row = 0
        for prefix, run in groupby(block, key=lambda line: line[: level + 1]):
            span = len(list(run))
            heads[row].append(Head(prefix[-1], span + (more and level == 0)))
            row += span
    return heads


def _column_heads(values: Sequence[Sequence[str]]) -> list[tuple[Head, ...]]:
    heads, repeat = [], 1
    for level, several in enumerate(values):
        span = prod(len(inner) for inner in values[level + 1 :])
        heads.append(tuple(Head(value, span) for value in several) * repeat)
        repeat *= len(several)
    return heads
