"""Checks between the fragments of a family, so that they keep their meaning in every plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import NamedTuple, TypeAlias

from jitlto.base.errors import BuildError
from jitlto.base.mangling import demangle
from jitlto.plan.resolve import is_compatible
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Fragment, Role, SymbolKind

_Reached: TypeAlias = Mapping[str, set[str]]


class _Definition(NamedTuple):
    inline: bool
    fragment: Fragment
    interfaces: frozenset[str]  # interface symbols that the fragment provides


_Definitions: TypeAlias = Mapping[str, Sequence[_Definition]]  # by symbol


def check_fragments(family: FamilyRecord, fragments: Sequence[Fragment]) -> None:
    """Check a family's fragments, and those that it uses, against each other.

    Raises:
        BuildError: If a function is inline in one of two fragments that can meet in a plan and not in the other, or the
            layouts of a required symbol and its provider differ.
    """
    interface = {symbol.name for fragment in fragments for symbol in fragment.requires}
    _check_inline(_definitions(fragments, interface), _reach_groups(family, fragments))
    _check_layouts(fragments)


def shares_inline_functions(fragments: Sequence[Fragment]) -> bool:
    """Return whether fragments that can meet in a plan define one inline function each for themselves."""
    interface = {symbol.name for fragment in fragments for symbol in fragment.requires}
    return any(
        _find_meeting([d for d in several if d.inline], lambda _one, _other: True) is not None
        for several in _definitions(fragments, interface).values()
        if len(several) > 1
    )


def _check_inline(definitions: _Definitions, reached: _Reached) -> None:
    """Check that no plan holds a definition that is inline beside one that is not, which the linker prefers."""
    for name in sorted(definitions):
        if len({definition.inline for definition in definitions[name]}) < 2:
            continue
        if pair := _find_meeting(
            definitions[name], lambda one, other: one.inline != other.inline and _meet(one, other, reached)
        ):
            one, other = sorted(pair, key=lambda definition: definition.inline)
            what = f"{demangle(name)} is inline in {other.fragment.key}, but not in {one.fragment.key}"
            hint = "define it inline in both, in one header, or rename one of them"
            raise BuildError(what, code="build-conflicting-definitions", hint=hint)


def _definitions(fragments: Sequence[Fragment], interface: set[str]) -> _Definitions:
    """Return the definitions of each symbol that is no kernel."""
    definitions: dict[str, list[_Definition]] = defaultdict(list)
    for fragment in fragments:
        provided = frozenset(s.name for s in fragment.provides) & interface
        for symbol in fragment.provides:
            if symbol.kind is not SymbolKind.KERNEL:
                definitions[symbol.name].append(_Definition(symbol.weak, fragment, provided))
    return definitions


def _find_meeting(
    definitions: Sequence[_Definition], clash: Callable[[_Definition, _Definition], bool]
) -> tuple[_Definition, _Definition] | None:
    """Find two definitions that one plan can hold, and that ``clash``.

    A plan cannot hold two kernels, two providers of one symbol, or two values of one parameter. Families have thousands
    of fragments, so those that agree are looked up by the values of their common parameters.
    """
    alike: dict[tuple[Role, tuple[str, ...]], list[_Definition]] = defaultdict(list)
    for definition in definitions:
        fragment = definition.fragment
        alike[fragment.role, tuple(name for name, _ in fragment.key.parameters)].append(definition)
    for (role, names), (other_role, other_names) in combinations_with_replacement(alike, 2):
        if role is other_role is Role.ENTRYPOINT:
            continue
        shared = set(names) & set(other_names)
        agreeing: dict[tuple[tuple[str, str], ...], list[_Definition]] = defaultdict(list)
        for other in alike[other_role, other_names]:
            agreeing[_values(other, shared)].append(other)
        for one in alike[role, names]:
            for other in agreeing.get(_values(one, shared), ()):
                differ = one.fragment is not other.fragment and clash(one, other)
                if differ and one.interfaces.isdisjoint(other.interfaces):
                    return one, other
    return None


def _values(definition: _Definition, names: set[str]) -> tuple[tuple[str, str], ...]:
    return tuple(parameter for parameter in definition.fragment.key.parameters if parameter[0] in names)


def _check_layouts(fragments: Sequence[Fragment]) -> None:
    providers = {(s.name, s.layout): (s, f) for f in fragments for s in f.provides}
    by_name = defaultdict(list)
    for symbol, fragment in providers.values():
        by_name[symbol.name].append((symbol, fragment))
    for fragment in fragments:
        for required in fragment.requires:
            for provided, provider in by_name[required.name]:
                if not is_compatible(required, provided):
                    raise BuildError(
                        f"{fragment.key} requires {demangle(required.name)} with layout {required.layout}, but "
                        f"{provider.key} provides it with layout {provided.layout}",
                        code="build-layout-mismatch",
                        hint="declare it once, in an interface header that both include",
                    )


def _meet(one: _Definition, other: _Definition, reached: _Reached) -> bool:
    return not reached[one.fragment.key.group].isdisjoint(reached[other.fragment.key.group])


def _reach_groups(family: FamilyRecord, fragments: Sequence[Fragment]) -> _Reached:
    """Return, for each group, the entrypoint groups whose kernels may contain its fragments."""
    provided: dict[str, set[str]] = defaultdict(set)
    required: dict[str, set[str]] = defaultdict(set)
    roots: set[str] = set()
    for fragment in fragments:
        if fragment.role is Role.ENTRYPOINT:
            roots.add(fragment.key.group)
        else:
            for symbol in fragment.provides:
                provided[symbol.name].add(fragment.key.group)
        required[fragment.key.group].update(symbol.name for symbol in fragment.requires)
    if any(group.supplied for group in family.groups):  # callers' code may call any group
        return defaultdict(lambda: roots or {""})
    reached: dict[str, set[str]] = defaultdict(set)
    for root in roots:
        pending = [root]
        for group in pending:
            reached[group].add(root)
            following = {other for name in required[group] for other in provided.get(name, ())}
            pending += sorted(other for other in following if root not in reached[other] and other not in pending)
    return reached
