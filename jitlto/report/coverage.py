"""Coverage of the product of a group's key parameters: which combinations exist, and which rules exclude the others.

Most matrices leave combinations out on purpose, by tying parameters together: an accumulator follows from the data
type, a vector length exists only for some types. Such rules show in pairs of parameters. A combination that is missing
although every two of its values occur together follows from no such rule: it is a *hole*, and should be checked,
unless the family declares that it is left out on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product
from math import prod

from jitlto.record.exclusions import Exclusion, is_excluded

#: One value of each dimension, in the order of the dimensions.
Cell = tuple[str, ...]

# Bounds, for a page that is made in seconds whatever a database says. What is beyond them is not analysed.
_MOST_CELLS = 50_000  # that are searched for holes
_MOST_STEPS = 20 * _MOST_CELLS  # of that search, for one dimension
_MOST_DIMENSIONS = 20
_MOST_PAIRS = 20_000  # of values of two dimensions


@dataclass(frozen=True, slots=True)
class Dimension:
    """A key parameter and its values, numbers in numerical order, other values by name."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Follows:
    """The value of ``name`` determines that of ``other``: ``pairs`` lists which."""

    name: str
    other: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Never:
    """A value never occurs with some values of another parameter."""

    name: str
    value: str
    other: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of a group's product.

    Args:
        dimensions: In the author's order.
        product: The number of cells.
        exist: The number of cells in the database.
        apart: The number of cells of the same build that are not in this database.
        rules: The combinations of two parameters' values that never occur.
        holes: Missing cells that no rule excludes, in order; None if there are too many cells to search.
        exclude: The group's exclusions.
        excluded: Missing cells that these exclude, in order; None if there are too many cells to search.
    """

    dimensions: tuple[Dimension, ...]
    product: int
    exist: int
    apart: int
    rules: tuple[Follows | Never, ...]
    holes: tuple[Cell, ...] | None
    exclude: tuple[Exclusion, ...] = ()
    excluded: tuple[Cell, ...] | None = ()

    @property
    def missing(self) -> int:
        """The number of cells without a fragment."""
        return self.product - self.exist - self.apart

    @property
    def varying(self) -> tuple[int, ...]:
        """Indices of the dimensions with more than one value."""
        return tuple(n for n, dimension in enumerate(self.dimensions) if len(dimension.values) > 1)


def natural(text: str) -> tuple[object, ...]:
    """Return a sort key that puts 8 before 16, and ``a8`` before ``a16``.

    >>> sorted(["16", "b", "8", "a16", "a8"], key=natural)
    ['8', '16', 'a8', 'a16', 'b']
    """
    # ASCII digits only, and compared as text: int() refuses literals of thousands of digits.
    parts = re.split(r"([0-9]+)", text)
    return tuple((0, len(p.lstrip("0")), p.lstrip("0")) if n % 2 else (1, p, "") for n, p in enumerate(parts) if p)


def measure_coverage(
    names: Sequence[str], present: Iterable[Cell], apart: Iterable[Cell] = (), exclude: tuple[Exclusion, ...] = ()
) -> Coverage:
    """Find which cells of the product of all occurring values exist, and what excludes the others.

    Args:
        names: The parameters.
        present: Cells in the database.
        apart: Cells of the same build that are in a different part, or that a merge has left out.
        exclude: The group's exclusions.
    """
    here = set(present)
    elsewhere = set(apart) - here
    known = here | elsewhere
    columns = zip(*known, strict=True) if known else ((),) * len(names)
    dimensions = tuple(
        Dimension(name, tuple(sorted(set(column), key=lambda value: (natural(value), value))))
        for name, column in zip(names, columns, strict=True)
    )
    if len(dimensions) > _MOST_DIMENSIONS:
        count = prod(len(dimension.values) for dimension in dimensions)
        return Coverage(dimensions, count, len(here), len(elsewhere), (), None, exclude, None if exclude else ())
    together = {(a, b): {(cell[a], cell[b]) for cell in known} for a, b in combinations(range(len(names)), 2)}
    count = prod(len(dimension.values) for dimension in dimensions) if known else 0
    allowed = _allowed(dimensions, together) if known else []
    excluded = _excluded(dimensions, count, exclude, known)
    meant = set(excluded or ())
    holes = None if allowed is None else tuple(cell for cell in allowed if cell not in known and cell not in meant)
    return Coverage(
        dimensions, count, len(here), len(elsewhere), _rules(dimensions, together), holes, exclude, excluded
    )


def _excluded(
    dimensions: Sequence[Dimension], count: int, exclude: Sequence[Exclusion], known: Collection[Cell]
) -> tuple[Cell, ...] | None:
    """Return the missing cells that exclusions match; None if the product is too large."""
    if not exclude:
        return ()
    if count > _MOST_CELLS or count * len(exclude) > _MOST_STEPS:
        return None
    names = [dimension.name for dimension in dimensions]
    cells = product(*(dimension.values for dimension in dimensions))
    return tuple(c for c in cells if c not in known and is_excluded(exclude, dict(zip(names, c, strict=True))))


def _allowed(
    dimensions: Sequence[Dimension], together: Mapping[tuple[int, int], set[tuple[str, str]]]
) -> list[Cell] | None:
    """Return the cells every two of whose values occur together, in order; None if there are too many."""
    cells: list[Cell] = [()]
    for place, dimension in enumerate(dimensions):
        if len(cells) * len(dimension.values) > _MOST_STEPS:
            return None
        longer: list[Cell] = []
        for cell in cells:
            longer += (
                (*cell, value)
                for value in dimension.values
                if all((before, value) in together[n, place] for n, before in enumerate(cell))
            )
            if len(longer) > _MOST_CELLS:
                return None
        cells = longer
    return cells


def _rules(
    dimensions: Sequence[Dimension], together: Mapping[tuple[int, int], set[tuple[str, str]]]
) -> tuple[Follows | Never, ...]:
    varying = [n for n, dimension in enumerate(dimensions) if len(dimension.values) > 1]
    follows: list[Follows | Never] = []
    followers: set[int] = set()
    for a, b in permutations(varying, 2):
        if a in followers or b in followers:
            continue
        pairs = together[a, b] if a < b else {(y, x) for x, y in together[b, a]}
        if len(pairs) == len(dimensions[a].values):
            partner = dict(pairs)
            ordered = tuple((value, partner[value]) for value in dimensions[a].values)
            follows.append(Follows(dimensions[a].name, dimensions[b].name, ordered))
            followers.add(b)
    # A follower's exclusions repeat those of the parameter that determines it.
    free = [n for n in varying if n not in followers]
    never = [rule for a, b in combinations(free, 2) for rule in _never(dimensions[a], dimensions[b], together[a, b])]
    return (*follows, *never)


def _never(a: Dimension, b: Dimension, pairs: set[tuple[str, str]]) -> list[Never]:
    """Return the shorter of two equivalent lists of rules: for the values of one parameter, or of the other."""
    if len(a.values) * len(b.values) > _MOST_PAIRS:
        return []
    one = [Never(a.name, x, b.name, tuple(y for y in b.values if (x, y) not in pairs)) for x in a.values]
    two = [Never(b.name, y, a.name, tuple(x for x in a.values if (x, y) not in pairs)) for y in b.values]
    return min(([rule for rule in rules if rule.values] for rules in (one, two)), key=len)
