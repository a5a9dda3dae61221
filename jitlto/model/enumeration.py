"""Enumeration of the kernels of a family: all configurations that its fragments offer, each resolved.

Starting at each entrypoint, a parameter that the reachable fragments leave open takes every value that they offer,
until each requirement has exactly one fragment, or none. Nothing is read or linked here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jitlto.errors import PlanError
from jitlto.model.family_record import FamilyRecord
from jitlto.model.fragment import Fragment, FragmentKey, Symbol
from jitlto.model.header_search import HeaderSearch
from jitlto.model.mangling import base_name
from jitlto.model.resolve import Index, Resolution, UserSymbols, agrees, resolve

# Comments and includes: they declare nothing.
_NO_DECLARATION = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*#[ \t]*include[^\n]*", re.S | re.M)
_WORD = re.compile(r"[A-Za-z_]\w*")


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


def enumerate_kernels(index: Index, user_symbols: Collection[str] = ()) -> Iterator[Kernel | DeadEnd]:
    """Yield all kernels of a family, each once, by entrypoint and then by parameter values, and all dead ends.

    Args:
        index: The family's fragments.
        user_symbols: The symbols that callers supply at run time; see :func:`find_user_symbols`.
    """
    for entry in sorted(index.entrypoints, key=lambda fragment: fragment.key):
        yield from _kernels_of(index, entry, user_symbols)


def find_user_symbols(record: FamilyRecord, index: Index) -> frozenset[str]:
    """Return the symbols that callers supply at run time: declared by a supplied group, provided by no fragment.

    A group that callers supply has an interface header and no fragments. A symbol belongs to it if its name occurs in
    that header, or in a header that only such interfaces include.
    """
    supplied = {group.interface for group in record.groups if group.supplied and group.interface}
    built = {group.interface for group in record.groups if not group.supplied and group.interface}
    if not supplied:
        return frozenset()
    headers = {name: text.encode("utf-8", "surrogateescape") for name, text in record.headers}
    search = HeaderSearch((), headers)

    def reach(interfaces: set[str]) -> frozenset[str]:
        return search.reachable("".join(f'#include "{name}"\n' for name in sorted(interfaces)).encode())

    files = reach(supplied) - reach(built - supplied)
    declared = {
        word for name, text in record.headers if name in files for word in _WORD.findall(_NO_DECLARATION.sub(" ", text))
    }
    return frozenset(n for n in index.required if not index.providers.get(n) and base_name(n) in declared)


def _kernels_of(index: Index, entry: Fragment, user_symbols: Collection[str]) -> Iterator[Kernel | DeadEnd]:
    seen: set[tuple[FragmentKey, ...]] = set()
    pending = [dict(entry.key.parameters)]
    while pending:
        configuration = pending.pop()
        step = _close(index, entry, configuration, user_symbols)
        missing = [name for name, candidates in step.open.items() if not candidates]
        choice = None if missing else _choice(step, configuration)
        if choice is not None:
            name, values = choice
            pending += [configuration | {name: value} for value in reversed(values)]
            continue
        concerned = _concerned(index, step, configuration, missing)
        if concerned is None:
            continue
        supplied = [UserSymbols("the caller's code", step.user_symbols, ())] if step.user_symbols else []
        try:
            resolution = resolve(index, configuration, entry_group=entry.key.group, supplied=supplied)
        except PlanError as error:
            yield DeadEnd(entry, concerned, error, (*step.chosen, *step.candidates()))
            continue
        device = tuple(fragment.key for fragment in resolution.device)
        if device not in seen:
            seen.add(device)
            whole = dict(resolution.configuration)
            agreed = all(agrees(fragment.key, whole) for fragment in resolution.fragments)
            yield Kernel(whole if agreed else configuration, resolution, step.user_symbols)


@dataclass(frozen=True, slots=True)
class _Step:
    """Result of a configuration: chosen fragments, open symbols with their candidates, callers' symbols."""

    chosen: tuple[Fragment, ...]
    open: Mapping[str, Sequence[Fragment]]
    user_symbols: tuple[Symbol, ...]

    def candidates(self) -> list[Fragment]:
        return [fragment for several in self.open.values() for fragment in several]


def _close(index: Index, entry: Fragment, configuration: Mapping[str, str], user_symbols: Collection[str]) -> _Step:
    """Choose the fragments that the configuration determines, and in turn those that they require."""
    chosen = [entry]
    candidates: dict[str, list[Fragment]] = {}
    waiting: dict[str, Symbol] = {}
    callers: dict[str, Symbol] = {}
    provided: set[str] = set()
    new: Fragment | None = entry
    while new is not None:
        provided.update(symbol.name for symbol in new.provides)
        for symbol in new.requires:
            if symbol.name in user_symbols:
                callers[symbol.name] = symbol
            elif symbol.name not in waiting:
                waiting[symbol.name] = symbol
                candidates[symbol.name] = index.find_providers(symbol.name, configuration)
        still_open = [name for name in sorted(waiting) if name not in provided]
        new = next((candidates[name][0] for name in still_open if len(candidates[name]) == 1), None)
        if new is not None:
            chosen.append(new)
    return _Step(
        tuple(chosen), {name: candidates[name] for name in still_open}, tuple(callers[name] for name in sorted(callers))
    )


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
        relevant = entry | index.provider_parameters(symbol)
        concerned = {name: value for name, value in configuration.items() if name in relevant & offered}
        if not index.find_providers(symbol, concerned):
            return concerned
    return None
