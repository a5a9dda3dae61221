"""Fragments among which a configuration chooses, found by the values of their parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from jitlto.model.fragment import Fragment

_Names: TypeAlias = tuple[str, ...]
_Positions: TypeAlias = dict[tuple[str, ...], list[int]]


class Candidates:
    """Fragments that agree with configurations; a look-up does not compare each of them.

    Args:
        fragments: All of them; results keep their order.
    """

    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self._fragments = fragments
        self._shapes: dict[_Names, list[int]] = defaultdict(list)
        for position, fragment in enumerate(fragments):
            self._shapes[tuple(name for name, _ in fragment.key.parameters)].append(position)
        # By the parameters of a shape that configurations give: configurations mostly give the same ones.
        self._by_values: dict[tuple[_Names, _Names], _Positions] = {}
        self._names = sorted({name for shape in self._shapes for name in shape})
        self._found: dict[tuple[str | None, ...], list[Fragment]] = {}  # by the values of all these

    def parameters(self) -> set[str]:
        """Return the names of all parameters that they have."""
        return set(self._names)

    def find(self, configuration: Mapping[str, str]) -> list[Fragment]:
        """Return those that no value of the configuration contradicts; parameters that it does not name are free."""
        values = tuple(map(configuration.get, self._names))
        if values not in self._found:
            self._found[values] = self._find(configuration)
        return self._found[values]

    def _find(self, configuration: Mapping[str, str]) -> list[Fragment]:
        found: list[int] = []
        for shape in self._shapes:
            given = tuple(name for name in shape if name in configuration)
            by_values = self._by_values.get((shape, given)) or self._group(shape, given)
            found += by_values.get(tuple(configuration[name] for name in given), ())
        return [self._fragments[position] for position in sorted(found)]

    def _group(self, shape: _Names, given: _Names) -> _Positions:
        places = [shape.index(name) for name in given]
        positions: _Positions = defaultdict(list)
        for position in self._shapes[shape]:
            parameters = self._fragments[position].key.parameters
            positions[tuple(parameters[place][1] for place in places)].append(position)
        self._by_values[shape, given] = positions
        return positions
