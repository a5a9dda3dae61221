"""Checks between the fragments of a family, so that they keep their meaning in every plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import NamedTuple

from jitlto.errors import BuildError, FamilyError, PlanError
from jitlto.model.enumeration import Kernel, enumerate_kernels, find_user_symbols
from jitlto.model.family_record import FamilyRecord
from jitlto.model.fragment import Fragment, Role, SymbolKind
from jitlto.model.mangling import base_name, demangle
from jitlto.model.resolve import Index, is_compatible


class _Definition(NamedTuple):
    inline: bool
    fragment: Fragment
    interfaces: frozenset[str]  # interface symbols that the fragment provides


def check_uses(families: Mapping[str, FamilyRecord]) -> None:
    """Check that families fit those that they use: distinct groups, and the same texts of interface headers.

    Args:
        families: By name, with all that they use.

    Raises:
        FamilyError: If a group has the name of a used one, or an include of a used interface finds another header.
    """
    for name, family in families.items():
        owners = {group.name: name for group in family.groups}
        headers = dict(family.headers)
        for used in map(families.__getitem__, family.uses):
            for group in used.groups:
                if (owner := owners.setdefault(group.name, used.name)) != used.name:
                    what = f"{name} uses {used.name}, and both {owner} and {used.name} have a group {group.name!r}"
                    raise FamilyError(what, code="family-use", hint="rename one of them")
            for header, text in used.headers:
                if headers.get(header) != text:
                    what = f"{name} uses {used.name}, but finds another header {header!r}, an interface of {used.name}"
                    hint = f"rename the one of {name}, or build both from the same sources"
                    raise FamilyError(what, code="family-use", hint=hint)


def check_fragments(family: FamilyRecord, fragments: Sequence[Fragment]) -> list[str]:
    """Check a family's fragments, and those that it uses, against each other.

    Returns:
        Advice on code that is allowed but probably a mistake.

    Raises:
        BuildError: If a function is inline in one of two fragments that can meet in a plan and not in the other, the
            layouts of a required symbol and its provider differ, or two groups of a kernel set one link option
            differently.
    """
    interface = {symbol.name for fragment in fragments for symbol in fragment.requires}
    _check_inline(fragments, interface)
    _check_layouts(fragments)
    _check_link_options(family, fragments)
    return [*_report_unmet(family, fragments), *_report_strong_helpers(fragments, interface)]


def _check_inline(fragments: Sequence[Fragment], interface: set[str]) -> None:
    """Check that no plan holds a definition that is inline beside one that is not, which the linker prefers."""
    definitions: dict[str, list[_Definition]] = defaultdict(list)
    for fragment in fragments:
        provided = frozenset(s.name for s in fragment.provides) & interface
        for symbol in fragment.provides:
            if symbol.kind is not SymbolKind.KERNEL:
                definitions[symbol.name].append(_Definition(symbol.weak, fragment, provided))
    for name in sorted(definitions):
        if pair := _find_clash(definitions[name]):
            one, other = sorted(pair, key=lambda definition: definition.inline)
            what = f"{demangle(name)} is inline in {other.fragment.key}, but not in {one.fragment.key}"
            hint = "define it inline in both, in one header, or rename one of them"
            raise BuildError(what, code="build-conflicting-definitions", hint=hint)


def _find_clash(definitions: Sequence[_Definition]) -> tuple[_Definition, _Definition] | None:
    """Find two definitions that one plan can hold, one of them inline.

    A plan cannot hold two kernels, two providers of one symbol, or two values of one parameter. Families have thousands
    of fragments, so those that agree are looked up by the values of their common parameters.
    """
    if len({definition.inline for definition in definitions}) < 2:
        return None
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
                differ = one.inline != other.inline and one.fragment is not other.fragment
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


def _check_link_options(family: FamilyRecord, fragments: Sequence[Fragment]) -> None:
    if not family.groups_disagree():
        return
    index = Index(fragments)
    for kernel in enumerate_kernels(index, find_user_symbols(family, index)):
        if isinstance(kernel, Kernel):
            try:
                family.link_options(kernel.resolution.fragments)
            except PlanError as error:
                what = f"{error.what} (kernel {kernel.resolution.entry.key})"
                hint = "set it for one of the groups, or to one value in all groups of a kernel"
                raise BuildError(what, code="build-conflicting-link-options", where=family.name, hint=hint) from None


def _report_unmet(family: FamilyRecord, fragments: Sequence[Fragment]) -> Iterable[str]:
    """Report requirements that no fragment meets, unless the family has groups that callers supply, or no kernel."""
    if any(group.supplied for group in family.groups) or not any(g.role is Role.ENTRYPOINT for g in family.groups):
        return
    provided = {symbol.name for fragment in fragments for symbol in fragment.provides}
    unmet: dict[str, Fragment] = {}
    for fragment in fragments:
        for symbol in fragment.requires:
            if symbol.name not in provided:
                unmet.setdefault(symbol.name, fragment)
    alike: dict[str, tuple[str, Fragment]] = {}  # by the name without types
    if unmet:
        for fragment in fragments:
            for symbol in fragment.provides:
                alike.setdefault(base_name(symbol.name), (symbol.name, fragment))
    for name, fragment in sorted(unmet.items()):
        near = alike.get(base_name(name))
        beside = f"; {near[1].key} provides {demangle(near[0])}" if near else ""
        yield f"{demangle(name)} is required by {fragment.key}, and no fragment of {family.name} provides it{beside}"


def _report_strong_helpers(fragments: Sequence[Fragment], interface: set[str]) -> Iterable[str]:
    owners: dict[str, list[Fragment]] = defaultdict(list)
    # An overload of an interface function is a mistake in its types rather than a helper.
    called = {base_name(name) for name in interface}
    for fragment in fragments:
        for symbol in fragment.provides:
            if not symbol.weak and base_name(symbol.name) not in called and symbol.kind is not SymbolKind.KERNEL:
                owners[symbol.name].append(fragment)
    for name, several in sorted(owners.items()):
        if len(several) > 1:
            yield (
                f"{demangle(name)} is defined in {len(several)} fragments, {several[0].key} and {several[1].key} among "
                "them, which do not link together: make it inline or static"
            )
