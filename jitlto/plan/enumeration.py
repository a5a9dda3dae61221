"""Enumeration of the kernels of a family: all configurations that its fragments offer, each resolved.

Starting at each entrypoint, a parameter that the reachable fragments leave open takes every value that they offer,
until each requirement has exactly one fragment, or none. Nothing is read or linked here.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeAlias

from jitlto.base.cached import cached_property
from jitlto.base.errors import PlanError
from jitlto.base.mangling import base_name
from jitlto.plan.resolve import Resolution, UserSymbols, is_compatible, resolve
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Fragment, Symbol
from jitlto.record.index import Index

# Comments and includes: they declare nothing.
_NO_DECLARATION = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*#[ \t]*include[^\n]*", re.S | re.M)
_WORD = re.compile(r"[A-Za-z_]\w*")

_Combination: TypeAlias = tuple[tuple[str, str | None], ...]


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
    """

    entry: Fragment
    configuration: Mapping[str, str]
    error: PlanError
    fragments: tuple[Fragment, ...]


def enumerate_kernels(
    index: Index, user_symbols: Collection[str] = (), most: int | None = None
) -> Iterator[Kernel | DeadEnd]:
    """Yield all kernels of a family, each once, by entrypoint and then by parameter values, and all dead ends.

    Args:
        index: The family's fragments.
        user_symbols: The symbols that callers supply at run time; see :func:`find_user_symbols`.
        most: How many to yield before only those follow that a covering set needs: every entrypoint, every combination
            of values on which the choice of a fragment depends, and of those for which two fragments define one name.
    """
    cover = None if most is None else _Cover(index, most)
    rules = _Rules(index)
    for entry in sorted(index.entrypoints, key=lambda fragment: fragment.key):
        yield from _kernels_of(index, entry, user_symbols, cover, rules)


def find_user_symbols(record: FamilyRecord, index: Index) -> frozenset[str]:
    """Return the symbols that callers supply at run time: declared by a supplied group, provided by no fragment.

    A group that callers supply has an interface header and no fragments. A symbol belongs to it if its name occurs in
    that header, and not in that of a group that is built.
    """
    supplied = {group.interface for group in record.groups if group.supplied and group.interface}
    built = {group.interface for group in record.groups if not group.supplied and group.interface}
    declared = {
        word
        for name, text in (record.headers if supplied else ())
        if name in supplied - built
        for word in _WORD.findall(_NO_DECLARATION.sub(" ", text))
    }
    return frozenset(n for n in index.required if not index.providers.get(n) and base_name(n) in declared)


class _Cover:
    """The combinations of values that occurred in kernels, counted from the first beyond ``most`` kernels on.

    What a required symbol brings into a kernel depends on the parameters of its providers, and in turn on those of what
    they require; whether two definitions of a name meet, on the parameters of both.
    """

    def __init__(self, index: Index, most: int) -> None:
        self._index = index
        self._left = most
        self._covered: set[_Combination] = set()
        self._deciding: dict[str, Sequence[str]] = {}  # by symbol

    def combinations(self, entry: Fragment, step: _Step, configuration: Mapping[str, str]) -> list[_Combination] | None:
        """Return those of a configuration, some values of which may be open; None if there are kernels with all."""
        if self._left > 0:
            return []
        found: list[_Combination] = [(*entry.key.parameters, (entry.key.group, None))]
        for name in (*step.required, *self._defined_twice):
            parameters = self._defined_twice.get(name) or self._parameters(name)
            found.append(((name, None), *((each, configuration.get(each)) for each in parameters)))
        return None if self._covered.issuperset(found) else found

    def add(self, node: _Node | None) -> None:
        """Count a kernel, or a dead end, with the configurations that led to it."""
        self._left -= 1
        while node is not None:
            self._covered.update(node.combinations)
            node = node.parent

    def _parameters(self, symbol: str) -> Sequence[str]:
        if symbol not in self._deciding:
            groups = list(dict.fromkeys(fragment.key.group for fragment in self._index.providers.get(symbol, ())))
            for group in groups:  # which grows
                groups += self._groups[group][1] - {*groups}
            self._deciding[symbol] = sorted({name for group in groups for name in self._groups[group][0]})
        return self._deciding[symbol]

    @cached_property
    def _fragments(self) -> Collection[Fragment]:
        providers = chain.from_iterable(self._index.providers.values())
        return {fragment.key: fragment for fragment in (*self._index.entrypoints, *providers)}.values()

    @cached_property
    def _groups(self) -> Mapping[str, tuple[set[str], set[str]]]:
        """The parameters of each group, and the groups that provide what it requires."""
        found: dict[str, tuple[set[str], set[str]]] = {}
        for fragment in self._fragments:
            parameters, groups = found.setdefault(fragment.key.group, (set(), set()))
            parameters.update(name for name, _ in fragment.key.parameters)
            for symbol in fragment.requires:
                groups.update(other.key.group for other in self._index.providers.get(symbol.name, ()))
        return found

    @cached_property
    def _defined_twice(self) -> Mapping[str, Sequence[str]]:
        """The parameters of all fragments that define a name, for each that several define and not inline."""
        definers: dict[str, list[Fragment]] = {}
        for fragment in self._fragments:
            for symbol in fragment.provides:
                if not symbol.weak and symbol.name not in self._index.required:
                    definers.setdefault(symbol.name, []).append(fragment)
        return {
            symbol: sorted({name for fragment in several for name, _ in fragment.key.parameters})
            for symbol, several in definers.items()
            if len(several) > 1
        }


class _Rules:
    """What the planner refuses of fragments that agree, found once for a family instead of once for each kernel."""

    def __init__(self, index: Index) -> None:
        self._index = index
        fragments = [*index.entrypoints, *{f.key: f for several in index.providers.values() for f in several}.values()]
        provided: dict[str, set[Symbol]] = defaultdict(set)
        count = Counter(symbol.name for fragment in fragments for symbol in fragment.provides)
        for symbol in chain.from_iterable(fragment.provides for fragment in fragments):
            provided[symbol.name].add(symbol)
        wanted = {symbol for fragment in fragments for symbol in fragment.requires}
        unlike = {w.name for w in wanted if not all(is_compatible(w, each) for each in provided[w.name])}
        strong = {name for name, several in provided.items() if count[name] > 1 and not all(s.weak for s in several)}
        entries = {symbol.name for fragment in index.entrypoints for symbol in fragment.provides}
        #: Symbols that differ in layout, that have definitions which must not meet, or that an entrypoint defines.
        self._suspect = unlike | (strong - index.required) | (entries & index.required)
        #: Those of fragments that provide several: one that is chosen for another symbol brings them along.
        several = ([s.name for s in f.provides if s.name in index.required] for f in fragments)
        self._along = {name for names in several if len(names) > 1 for name in names}

    def allow(self, step: _Step, configuration: Mapping[str, str]) -> bool:
        """Return whether the planner takes the fragments of a step, and no others; if not, it may do so or say why."""
        return (
            not (step.open or step.user_symbols)
            and self._suspect.isdisjoint(step.provided)
            and len(self._index.find_entries(step.chosen[0].key.group, configuration)) == 1
            and all(
                len(self._index.find_providers(n, configuration)) < 2 for n in self._along.intersection(step.provided)
            )
        )


def _kernels_of(
    index: Index, entry: Fragment, user_symbols: Collection[str], cover: _Cover | None, rules: _Rules
) -> Iterator[Kernel | DeadEnd]:
    seen: set[tuple[int, ...]] = set()  # the device fragments, which the index keeps
    pending: list[tuple[dict[str, str], str, _Node | None]] = [(dict(entry.key.parameters), "", None)]
    while pending:
        configuration, added, parent = pending.pop()
        before = parent.step if parent and _agree(parent.step.chosen, added, configuration[added]) else None
        step = _close(index, entry, configuration, user_symbols, before, added)
        combinations = cover.combinations(entry, step, configuration) if cover else []
        if combinations is None:
            continue
        node = _Node(step, combinations, parent)
        missing = [name for name, candidates in step.open.items() if not candidates]
        choice = None if missing else _choice(step, configuration)
        if choice is not None:
            name, values = choice
            pending += [(configuration | {name: value}, name, node) for value in reversed(values)]
            continue
        if rules.allow(step, configuration):
            if cover is not None:
                cover.add(node)
            resolution = Resolution.of(step.chosen)
            if (device := tuple(map(id, resolution.device))) not in seen:
                seen.add(device)
                yield Kernel(dict(resolution.configuration), resolution, ())
            continue
        concerned = _concerned(index, step, configuration, missing)
        if concerned is None:
            continue
        if cover is not None:
            cover.add(node)
        supplied = [UserSymbols("the caller's code", step.user_symbols, ())] if step.user_symbols else []
        try:
            resolution = resolve(index, configuration, entry_group=entry.key.group, supplied=supplied)
        except PlanError as error:
            yield DeadEnd(entry, concerned, error, (*step.chosen, *step.candidates()))
            continue
        if (device := tuple(map(id, resolution.device))) not in seen:
            seen.add(device)
            yield Kernel(dict(resolution.configuration), resolution, step.user_symbols)


@dataclass(frozen=True, slots=True)
class _Step:
    """Result of a configuration: chosen fragments, what they require and provide, open symbols with candidates."""

    chosen: tuple[Fragment, ...]
    required: Collection[str]
    provided: Collection[str]
    open: Mapping[str, Sequence[Fragment]]
    user_symbols: tuple[Symbol, ...]

    def candidates(self) -> list[Fragment]:
        return [fragment for several in self.open.values() for fragment in several]


class _Node(NamedTuple):
    """A configuration with some values open, and the one with a value less that led to it."""

    step: _Step
    combinations: Sequence[_Combination]
    parent: _Node | None


def _close(
    index: Index,
    entry: Fragment,
    configuration: Mapping[str, str],
    user_symbols: Collection[str],
    before: _Step | None,
    added: str,
) -> _Step:
    """Choose the fragments that the configuration determines, and in turn those that they require.

    Args:
        before: The result of a configuration without one of the values, which none of its chosen fragments contradicts.
        added: The parameter of that value.
    """
    chosen = list(before.chosen) if before else [entry]
    candidates: dict[str, Sequence[Fragment]] = {}
    required = set(before.required) if before else set[str]()
    callers = {symbol.name: symbol for symbol in before.user_symbols} if before else {}
    provided = set(before.provided) if before else set[str]()
    for name, several in before.open.items() if before else ():
        depends = added in index.provider_parameters(name)
        candidates[name] = index.find_providers(name, configuration) if depends else several
    pending = [] if before else [entry]
    while True:
        for new in pending:
            provided.update([symbol.name for symbol in new.provides])
            for symbol in new.requires:
                if symbol.name in user_symbols:
                    callers[symbol.name] = symbol
                elif symbol.name not in required:
                    required.add(symbol.name)
                    candidates[symbol.name] = index.find_providers(symbol.name, configuration)
        candidates = {name: several for name, several in candidates.items() if name not in provided}
        found = min((name for name, several in candidates.items() if len(several) == 1), default=None)
        if found is None:
            break
        pending = [candidates[found][0]]
        chosen += pending
    still_open = {name: candidates[name] for name in sorted(candidates)}
    users = tuple(callers[name] for name in sorted(callers))
    return _Step(tuple(chosen), required, provided, still_open, users)


def _agree(fragments: Iterable[Fragment], name: str, value: str) -> bool:
    return all(each[1] == value for fragment in fragments for each in fragment.key.parameters if each[0] == name)


def _choice(step: _Step, configuration: Mapping[str, str]) -> tuple[str, list[str]] | None:
    """Return the first parameter that would decide between candidates for one symbol, and all values offered for it.

    Values of the chosen fragments count too: they may exclude every candidate.
    """
    deciding: set[str] = set()
    offered: dict[str, set[str]] = {}
    for candidates in (step.chosen, *step.open.values()):
        values: dict[str, set[str]] = {}
        for fragment in candidates:
            for name, value in fragment.key.parameters:
                if name not in configuration:
                    values.setdefault(name, set()).add(value)
        for name, several in values.items():
            offered.setdefault(name, set()).update(several)
            if len(several) > 1 and candidates is not step.chosen:
                deciding.add(name)
    if not deciding:
        return None
    name = min(deciding)
    return name, sorted(offered[name])


def _concerned(
    index: Index, step: _Step, configuration: Mapping[str, str], missing: Sequence[str]
) -> Mapping[str, str] | None:
    """Return the values of a configuration for which something is missing or undecided.

    A value counts if the entrypoint or another fragment that could take part has it. Return None if providers exist for
    these values, and the combination is merely one that a provider's own matrix leaves out.
    """
    entry = {name for name, _ in step.chosen[0].key.parameters}
    offered = {name for fragment in (*step.chosen, *step.candidates()) for name, _ in fragment.key.parameters}
    if not missing:
        return {name: value for name, value in configuration.items() if name in offered}
    for symbol in missing:
        relevant = entry.union(index.provider_parameters(symbol))
        concerned = {name: value for name, value in configuration.items() if name in relevant & offered}
        if not index.find_providers(symbol, concerned):
            return concerned
    return None
