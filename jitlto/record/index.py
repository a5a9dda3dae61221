"""A family's fragments by role, by symbol and by the values of their parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TypeAlias

from jitlto.record.fragment import Fragment, FragmentKey, Role

_Names: TypeAlias = tuple[str, ...]
_Positions: TypeAlias = dict[tuple[str, ...], list[int]]


class Candidates:
    """Keys that agree with configurations; a look-up does not compare each of them.

    Args:
        keys: All of them; results keep their order.
    """

    def __init__(self, keys: Sequence[FragmentKey]) -> None:
        self._keys = keys
        self._shapes: dict[_Names, list[int]] = defaultdict(list)
        for position, key in enumerate(keys):
            self._shapes[tuple(name for name, _ in key.parameters)].append(position)
        # By the parameters of a shape that configurations give: configurations mostly give the same ones.
        self._by_values: dict[tuple[_Names, _Names], _Positions] = {}
        self._names = sorted({name for shape in self._shapes for name in shape})
        self._found: dict[tuple[str | None, ...], list[FragmentKey]] = {}  # by the values of all these

    def parameters(self) -> Sequence[str]:
        """Return the names of all parameters that they have."""
        return self._names

    def find(self, configuration: Mapping[str, str]) -> list[FragmentKey]:
        """Return those that no value of the configuration contradicts; parameters that it does not name are free."""
        values = tuple(map(configuration.get, self._names))
        if values not in self._found:
            self._found[values] = self._find(configuration)
        return self._found[values]

    def _find(self, configuration: Mapping[str, str]) -> list[FragmentKey]:
        found: list[int] = []
        for shape in self._shapes:
            given = tuple(name for name in shape if name in configuration)
            by_values = self._by_values.get((shape, given)) or self._group(shape, given)
            found += by_values.get(tuple(configuration[name] for name in given), ())
        return [self._keys[position] for position in sorted(found)]

    def _group(self, shape: _Names, given: _Names) -> _Positions:
        places = [shape.index(name) for name in given]
        positions: _Positions = defaultdict(list)
        for position in self._shapes[shape]:
            parameters = self._keys[position].parameters
            positions[tuple(parameters[place][1] for place in places)].append(position)
        self._by_values[shape, given] = positions
        return positions


class Index:
    """A family's fragments, indexed by role and by the symbols that they provide and require.

    Args:
        fragments: All of the family.
        gaps: The keys of those that a merge left out.
    """

    def __init__(self, fragments: Sequence[Fragment], gaps: Sequence[FragmentKey] = ()) -> None:
        self.gaps: Sequence[FragmentKey] = gaps
        self.required: Set[str] = {symbol.name for fragment in fragments for symbol in fragment.requires}
        self.entrypoints: Sequence[Fragment] = [f for f in fragments if f.role is Role.ENTRYPOINT]
        providers: dict[str, list[Fragment]] = defaultdict(list)
        for fragment in fragments:
            if fragment.role is Role.DEVICE:
                for symbol in fragment.provides:
                    providers[symbol.name].append(fragment)
        self.providers: Mapping[str, Sequence[Fragment]] = providers
        self._by_key = {fragment.key: fragment for fragment in fragments}
        self._entries: dict[str | None, Candidates] = {}  # by group
        self._candidates: dict[str, Candidates] = {}  # by symbol

    def entry_groups(self) -> set[str]:
        """Return the groups of entrypoints."""
        return {fragment.key.group for fragment in self.entrypoints}

    def entry_keys(self, group: str | None) -> list[FragmentKey]:
        """Return the keys of all entrypoints, or of those of one group."""
        return [fragment.key for fragment in self.entrypoints if group in (None, fragment.key.group)]

    def find_entries(self, group: str | None, configuration: Mapping[str, str]) -> list[Fragment]:
        """Return the entrypoints, of one group if it is given, that agree with a configuration."""
        if group not in self._entries:
            self._entries[group] = Candidates(self.entry_keys(group))
        return list(map(self._get, self._entries[group].find(configuration)))

    def provider_keys(self, symbol: str) -> list[FragmentKey]:
        """Return the keys of the device fragments that provide a symbol."""
        return [fragment.key for fragment in self.providers.get(symbol, ())]

    def find_providers(self, symbol: str, configuration: Mapping[str, str]) -> list[Fragment]:
        """Return the device fragments that provide a symbol and agree with a configuration."""
        return list(map(self._get, self._providers(symbol).find(configuration)))

    def provider_parameters(self, symbol: str) -> Sequence[str]:
        """Return the parameters of the device fragments that provide a symbol."""
        return self._providers(symbol).parameters()

    def _providers(self, symbol: str) -> Candidates:
        if symbol not in self._candidates:
            self._candidates[symbol] = Candidates(self.provider_keys(symbol))
        return self._candidates[symbol]

    def _get(self, key: FragmentKey) -> Fragment:
        return self._by_key[key]


def agrees(key: FragmentKey, configuration: Mapping[str, str]) -> bool:
    """Return whether no parameter of a key contradicts a configuration; parameters that it does not name are free."""
    return all(configuration.get(name, value) == value for name, value in key.parameters)


def parameter_values(fragments: Iterable[Fragment]) -> dict[str, tuple[str, ...]]:
    """Return the key parameters of fragments and the values of each, both sorted."""
    return sorted_values((name, (value,)) for fragment in fragments for name, value in fragment.key.parameters)


def sorted_values(several: Iterable[tuple[str, Iterable[str]]]) -> dict[str, tuple[str, ...]]:
    """Join values by parameter: return each parameter with all of its values, both sorted."""
    values: dict[str, set[str]] = {}
    for name, some in several:
        values.setdefault(name, set()).update(some)
    return {name: tuple(sorted(values[name], key=numbers_first)) for name in sorted(values)}


def merge_values(mappings: Iterable[Mapping[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """Join what :func:`sorted_values` returned; a parameter of one mapping alone is not sorted again."""
    parts: dict[str, list[tuple[str, ...]]] = {}
    for mapping in mappings:
        for name, values in mapping.items():
            parts.setdefault(name, []).append(values)
    joined = sorted_values((name, values) for name, several in parts.items() if len(several) > 1 for values in several)
    return {name: joined[name] if name in joined else parts[name][0] for name in sorted(parts)}


def numbers_first(text: str) -> tuple[int, float, str]:
    return (0, float(text), text) if text.isdecimal() else (1, 0.0, text)
