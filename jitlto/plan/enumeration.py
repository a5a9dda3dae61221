"""Enumeration of the kernels of a family: all configurations that its fragments offer, each resolved.

Starting at each entrypoint, a parameter that the reachable fragments leave open takes every value that they offer,
until each requirement has exactly one fragment, or none. Nothing is read or linked here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from jitlto.base.cached import cached_property
from jitlto.base.errors import PlanError
from jitlto.database.index import Index
from jitlto.plan.resolve import Resolution, Selection, choose_entry
from jitlto.record.fragment import Fragment, FragmentKey, Symbol

_Combination: TypeAlias = tuple[tuple[str, str | None], ...]
_Path: TypeAlias = tuple[list[_Combination], ...]  # of a configuration, and of those with fewer values that led to it


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a family, resolved.

    Args:
        configuration: Every parameter on which its plan depends; if two of its fragments differ in a parameter, only
            the parameters that are needed.
        resolution: Its fragments.
        user_symbols: The symbols that callers supply at run time.
    """

    configuration: Mapping[str, str]
    resolution: Resolution
    user_symbols: tuple[Symbol, ...]


@dataclass(frozen=True, slots=True)
class DeadEnd:
    """A configuration that fragments offer and that does not resolve to one kernel.

    Args:
        entry: The entrypoint.
        configuration: The combination of values for which something is missing or undecided.
        error: Why it does not resolve.
        fragments: The fragments that could take part in such a kernel.
        missing: The first symbol that no fragment provides for these values; empty if there is none.
    """

    entry: Fragment
    configuration: Mapping[str, str]
    error: PlanError
    fragments: tuple[Fragment, ...]
    missing: str


def enumerate_kernels(index: Index, most: int | None = None) -> Iterator[Kernel | DeadEnd]:
    """Yield all kernels of a family, each once, by entrypoint and then by parameter values, and all dead ends.

    Args:
        index: The family's fragments.
        most: How many to yield before only those follow that a covering set needs: every entrypoint, every combination
            of values on which the choice of a fragment depends, and of those for which two fragments define one name.
    """
    cover, user_symbols = None if most is None else _Cover(index, most), _find_user_symbols(index)
    for entry in sorted(index.entrypoints, key=lambda fragment: fragment.key):
        yield from _kernels_of(index, entry, user_symbols, cover)


def _find_user_symbols(index: Index) -> frozenset[str]:
    """Return the symbols that callers supply at run time: declared by a supplied group, provided by no fragment."""
    if not any(group.supplied for group in index.record.groups):
        return frozenset()
    groups = index.record.supplied_groups()
    return frozenset(name for name in index.required if not index.providers.get(name) and groups(name))


def _kernels_of(
    index: Index, entry: Fragment, user_symbols: Collection[str], cover: _Cover | None
) -> Iterator[Kernel | DeadEnd]:
    seen: set[tuple[FragmentKey, ...]] = set()
    pending: list[tuple[Mapping[str, str], _Path]] = [(dict(entry.key.parameters), ())]
    while pending:
        configuration, path = pending.pop()
        selection = Selection(index, configuration, entry, given=user_symbols)
        if cover is not None:
            combinations = cover.combinations(selection)
            if cover.has(combinations):
                continue
            path += (combinations,)
        missing = [name for name, candidates in selection.open.items() if not candidates]
        if not missing and (choice := _choice(selection)):
            name, values = choice
            pending += [({**configuration, name: value}, path) for value in reversed(values)]
            continue
        involved = (*selection.chosen, *chain.from_iterable(selection.open.values()))
        concerned = _concerned(selection, missing, involved) if missing else selection.configuration
        if concerned is None:
            continue
        if cover is not None:
            cover.add(path)
        try:
            choose_entry(index, selection.configuration, entry.key.group)  # which must be this one alone
            resolution = selection.finish()
        except PlanError as error:
            names = _names(involved)
            yield DeadEnd(
                entry, {n: value for n, value in concerned.items() if n in names}, error, involved, (missing or [""])[0]
            )
            continue
        device = tuple([fragment.key for fragment in resolution.device])
        if device not in seen:
            seen.add(device)
            whole = dict(resolution.configuration)
            agreed = len(whole) == len(_names(resolution.fragments))
            # A value that no fragment of the kernel has may still exclude another fragment.
            if agreed and not whole.keys() >= selection.configuration.keys():
                agreed = _plans(index, whole, resolution, user_symbols)
            users = tuple([selection.required[name][0] for name in sorted(selection.required.keys() & user_symbols)])
            yield Kernel(whole if agreed else selection.configuration, resolution, users)


def _plans(index: Index, configuration: Mapping[str, str], kernel: Resolution, user_symbols: Collection[str]) -> bool:
    """Return whether a configuration plans to a kernel."""
    try:
        entry = choose_entry(index, configuration, kernel.entry.key.group)
        return Selection(index, configuration, entry, given=user_symbols).finish() == kernel
    except PlanError:
        return False


def _choice(selection: Selection) -> tuple[str, list[str]] | None:
    """Return the first parameter that would decide between candidates for one symbol, and all values offered for it.

    Values of the chosen fragments count too: they may exclude every candidate.
    """
    deciding: set[str] = set()
    for candidates in selection.open.values():
        pairs = {pair for fragment in candidates for pair in fragment.key.parameters}
        if len(values := dict(pairs)) < len(pairs):
            deciding.update(name for name, value in pairs if values[name] != value)
    if not deciding:
        return None
    name, involved = min(deciding), chain(selection.chosen, *selection.open.values())
    return name, sorted({value for fragment in involved for n, value in fragment.key.parameters if n == name})


def _concerned(selection: Selection, missing: Sequence[str], involved: Iterable[Fragment]) -> Mapping[str, str] | None:
    """Return the values of a configuration for which something is missing.

    Those count that the entrypoint or another fragment that could take part has. Return None if providers exist for
    these values, and the combination is merely one that a provider's own matrix leaves out.
    """
    entry, offered = _names([selection.entry]), _names(involved)
    for symbol in missing:
        relevant = offered.intersection(entry.union(selection.index.provider_parameters(symbol)))
        concerned = {name: value for name, value in selection.configuration.items() if name in relevant}
        if not selection.index.find_providers(symbol, concerned):
            return concerned
    return None


class _Cover:
    """The combinations of values that occurred in kernels, counted from the first beyond ``most`` kernels on.

    What a required symbol brings into a kernel depends on the parameters of its providers, and in turn on those of what
    they require; whether two definitions of a name meet, on the parameters of both.
    """

    def __init__(self, index: Index, most: int) -> None:
        self._left = most
        self._covered: set[_Combination] = set()
        self._index = index
        self._deciding: dict[str, Sequence[str]] = {}  # by required symbol

    def combinations(self, selection: Selection) -> list[_Combination]:
        """Return those of a configuration, some values of which may be open."""
        if self._left > 0:
            return []
        given, key = selection.configuration, selection.entry.key
        deciding = {name: self._find_deciding(name) for name in selection.required} | self._defined_twice
        found = [((name, None), *((each, given.get(each)) for each in names)) for name, names in deciding.items()]
        return [(*key.parameters, (key.group, None)), *found]

    def has(self, combinations: list[_Combination]) -> bool:
        """Return whether there are kernels with all of them."""
        return self._left <= 0 and self._covered.issuperset(combinations)

    def add(self, path: _Path) -> None:
        """Count a kernel, or a dead end, with the combinations of the configurations that led to it."""
        self._left -= 1
        self._covered.update(chain.from_iterable(path))

    def _find_deciding(self, symbol: str) -> Sequence[str]:
        if symbol not in self._deciding:
            symbols, names = [symbol], set[str]()
            for each in symbols:  # which grows
                parameters, further = self._direct.get(each, (set(), set()))
                names |= parameters
                symbols += further.difference(symbols)
            self._deciding[symbol] = sorted(names)
        return self._deciding[symbol]

    @cached_property
    def _direct(self) -> Mapping[str, tuple[set[str], set[str]]]:
        """By symbol, the parameters of its providers, and the symbols that these require."""
        return {
            name: (_names(several), {symbol.name for fragment in several for symbol in fragment.requires})
            for name, several in self._index.providers.items()
        }

    @cached_property
    def _defined_twice(self) -> dict[str, Sequence[str]]:
        """The parameters of all fragments that define a name, for each that several define and not inline."""
        definers: dict[str, dict[FragmentKey, Fragment]] = {}
        for fragment in chain(self._index.entrypoints, *self._index.providers.values()):
            for symbol in fragment.provides:
                if not symbol.weak and symbol.name not in self._index.required:
                    definers.setdefault(symbol.name, {})[fragment.key] = fragment
        return {name: sorted(_names(each.values())) for name, each in definers.items() if len(each) > 1}


def _names(fragments: Iterable[Fragment]) -> set[str]:
    return {name for fragment in fragments for name, _ in fragment.key.parameters}
