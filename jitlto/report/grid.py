"""A group's product as a table: some of its parameters go down, the others across, with a cell for each combination.

Most matrices leave combinations out on purpose, by tying two parameters together: a vector length exists only for some
types. A combination that is missing although every two of its values occur together is a *hole*, and should be
checked.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

#: One value of each parameter, in the order of the parameters.
Cell = tuple[str, ...]

# Bounds, for a page that is made and opened at once whatever a database says. What is beyond them is not drawn.
_MOST_CELLS = 4_000
_MOST_COLUMNS = 24


@dataclass(frozen=True, slots=True)
class Grid:
    """A drawn product: the parameters that go down, and those that go across, and the values of each column and row.

    A cell of a row ``exists``, is ``missing`` or is a ``hole``.
    """

    down: tuple[str, ...]
    across: tuple[str, ...]
    columns: tuple[Cell, ...]
    rows: tuple[tuple[Cell, tuple[tuple[str, Cell], ...]], ...]

    @property
    def states(self) -> set[str]:
        """The states that occur."""
        return {state for _, cells in self.rows for state, _ in cells}


def draw(parameters: Mapping[str, Sequence[str]], present: Iterable[Cell]) -> Grid | None:
    """Draw the product of all values, which occur in present cells; None if no parameter varies, or it is too large."""
    states = dict.fromkeys(present, "exists")
    names, values = [*parameters], [*parameters.values()]
    varying = [n for n, several in enumerate(values) if len(several) > 1]
    sizes = [len(values[n]) for n in varying]
    if not varying or prod(sizes) > _MOST_CELLS:
        return None
    pairs = {(a, b): {(cell[a], cell[b]) for cell in states} for a, b in combinations(varying, 2)}
    for cell in product(*values):
        if cell not in states and all((cell[a], cell[b]) in together for (a, b), together in pairs.items()):
            states[cell] = "hole"
    # As many go across as there is room for, but of several at least one each way.
    split = next((n for n in range(1, len(varying)) if prod(sizes[n:]) <= _MOST_COLUMNS), max(1, len(varying) - 1))
    down, across = varying[:split], varying[split:]
    lines, columns = (list(product(*(values[n] for n in chosen))) for chosen in (down, across))

    def cell_at(line: Cell, column: Cell) -> tuple[str, Cell]:
        chosen = dict(zip(varying, (*line, *column), strict=True))
        cell = tuple(chosen.get(n, several[0]) for n, several in enumerate(values))
        return states.get(cell, "missing"), cell

    rows = tuple((line, tuple(cell_at(line, column) for column in columns)) for line in lines)
    named_down, named_across = (tuple(names[n] for n in chosen) for chosen in (down, across))
    return Grid(named_down, named_across, tuple(columns), rows)
