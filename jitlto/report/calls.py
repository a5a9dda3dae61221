"""Calls between fragments, described by groups: the providers and requirers of each symbol."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jitlto.base.mangling import base_name, demangle
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Fragment, Role, SymbolKind


@dataclass(frozen=True, slots=True)
class FragmentSet:
    """Some fragments of one group, described by what they have in common.

    Args:
        count: The number of these fragments.
        total: The number of fragments in the group.
        common: The parameter values that they share and that not every fragment of the group has.
        exact: Whether no other fragment of the group has these values.
    """

    group: str
    count: int
    total: int
    common: tuple[tuple[str, str], ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class Interface:
    """A symbol that fragments provide or require.

    Args:
        name: The mangled name.
        text: The demangled name.
        layout: Sizes in bytes, see :class:`jitlto.record.fragment.Symbol`.
        providers, requirers: One set for each group.
        supplied: If no fragment provides it, the groups supplied by callers whose interface declares it.
    """

    name: str
    text: str
    kind: SymbolKind
    layout: str
    providers: tuple[FragmentSet, ...]
    requirers: tuple[FragmentSet, ...]
    supplied: tuple[str, ...]

    @property
    def missing(self) -> bool:
        """True if it is required, and neither the database nor a caller provides it."""
        return bool(self.requirers) and not self.providers and not self.supplied


@dataclass(frozen=True, slots=True)
class Call:
    """Calls from the fragments of one group to those of another.

    Args:
        caller, callee: Groups; callers may supply the code of the callee.
        names: The functions and variables, without types.
        symbols: The number of different symbols with these names.
        callers: The calling fragments.
    """

    caller: str
    callee: str
    names: tuple[str, ...]
    symbols: int
    callers: FragmentSet


class Groups:
    """The fragments of a family by group and by parameter value."""

    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self._keys = [fragment.key for fragment in fragments]
        self._having: dict[tuple[str, str, str], set[int]] = defaultdict(set)
        self._all: dict[str, set[int]] = defaultdict(set)
        for place, key in enumerate(self._keys):
            self._all[key.group].add(place)
            for name, value in key.parameters:
                self._having[key.group, name, value].add(place)

    def describe(self, places: Iterable[int]) -> tuple[FragmentSet, ...]:
        """One :class:`FragmentSet` for each group among the fragments at these places, sorted by group."""
        by_group: dict[str, list[int]] = defaultdict(list)
        for place in places:
            by_group[self._keys[place].group].append(place)
        return tuple(self._fragment_set(group, several) for group, several in sorted(by_group.items()))

    def _fragment_set(self, group: str, places: Sequence[int]) -> FragmentSet:
        whole = self._all[group]
        if len(places) == len(whole) > 1:
            return FragmentSet(group, len(places), len(whole), (), True)
        common = set(self._keys[places[0]].parameters)
        for place in places[1:]:
            common.intersection_update(self._keys[place].parameters)
        distinguishing = sorted(item for item in common if len(self._having[group, *item]) < len(whole))
        sets = sorted((self._having[group, *item] for item in distinguishing), key=len)
        alike = len(sets[0].intersection(*sets[1:])) if sets else len(whole)
        return FragmentSet(group, len(places), len(whole), tuple(distinguishing), alike == len(places))


def interfaces(record: FamilyRecord | None, fragments: Sequence[Fragment], groups: Groups) -> tuple[Interface, ...]:
    """Return all symbols that fragments of a family require or provide, sorted by their text.

    Variables that no fragment requires are left out, because compilers list those in function bodies too.
    """
    layouts: dict[str, tuple[SymbolKind, str]] = {}
    providers: dict[str, list[int]] = defaultdict(list)
    requirers: dict[str, list[int]] = defaultdict(list)
    for place, fragment in enumerate(fragments):
        if fragment.role is Role.DEVICE:
            for symbol in fragment.provides:
                providers[symbol.name].append(place)
                layouts[symbol.name] = (symbol.kind, symbol.layout)
        for symbol in fragment.requires:
            requirers[symbol.name].append(place)
            layouts.setdefault(symbol.name, (symbol.kind, symbol.layout))
    declared = _declared_by_callers(record)
    found = [
        Interface(
            name,
            demangle(name),
            kind,
            layout,
            groups.describe(providers[name]),
            groups.describe(requirers[name]),
            () if providers[name] else tuple(g for g, words in declared if base_name(name) in words),
        )
        for name, (kind, layout) in layouts.items()
        if requirers[name] or kind is not SymbolKind.VARIABLE
    ]
    return tuple(sorted(found, key=lambda interface: (interface.text, interface.name)))


def _declared_by_callers(record: FamilyRecord | None) -> list[tuple[str, set[str]]]:
    """Return the groups that callers supply, each with the identifiers in its interface header."""
    headers = dict(record.headers) if record else {}
    supplied = [group for group in record.groups if group.supplied] if record else []
    return [(g.name, set(re.findall(r"\w+", headers.get(g.interface or "", "")))) for g in supplied]


def calls(found: Sequence[Interface], fragments: Sequence[Fragment], groups: Groups) -> tuple[Call, ...]:
    """Return the calls between groups, sorted by caller and callee."""
    callees = {each.name: (*(several.group for several in each.providers), *each.supplied) for each in found}
    symbols: dict[tuple[str, str], set[str]] = defaultdict(set)
    callers: dict[tuple[str, str], set[int]] = defaultdict(set)
    for place, fragment in enumerate(fragments):
        for symbol in fragment.requires:
            for callee in callees.get(symbol.name, ()):
                symbols[fragment.key.group, callee].add(symbol.name)
                callers[fragment.key.group, callee].add(place)
    return tuple(
        Call(*edge, tuple(sorted(set(map(base_name, names)))), len(names), *groups.describe(sorted(callers[edge])))
        for edge, names in sorted(symbols.items())
    )
