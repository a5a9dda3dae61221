"""What must hold between the fragments of a family, so that any plan made of them means what each of them says."""

from __future__ import annotations

import os.path
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from jitlto.database import FamilyRecord
from jitlto.errors import BuildError
from jitlto.fragment import Fragment, FragmentKey, Role, SymbolKind, plain_name
from jitlto.layout import compatible
from jitlto.mangling import base_name, demangle


def check(family: FamilyRecord, fragments: Sequence[Fragment]) -> list[str]:
    """Check a family's fragments against each other.

    Parameters
    ----------
    family : FamilyRecord
    fragments : sequence of Fragment
        All of the family.

    Returns
    -------
    list of str
        Advice: what links, or may not be used, but is probably not meant.

    Raises
    ------
    BuildError
        If two fragments that can meet in a plan define one inline function differently, or a provider's layout is
        not that which a requirer asks for.
    """
    interface = {symbol.name for fragment in fragments for symbol in fragment.requires}
    _check_weak(fragments, interface)
    _check_layouts(fragments)
    return [*_unmet(family, fragments), *_strong_helpers(fragments, interface)]


def check_interfaces(
    family: FamilyRecord, fragments: Sequence[Fragment], includes: Mapping[FragmentKey, frozenset[str]]
) -> None:
    """Check that whoever requires what an interface header declares has included that header.

    A requirer with a declaration of its own may have other types, which neither names nor layouts need show.

    Parameters
    ----------
    family : FamilyRecord
    fragments : sequence of Fragment
        All of the family.
    includes : mapping of FragmentKey to frozenset of str
        The headers that each one's source can reach.

    Raises
    ------
    BuildError
        At the first requirer that has not.
    """
    headers: dict[str, str] = {}
    for provider in fragments:
        group = family.group(provider.key.group)
        if group is not None and group.interface is not None:
            headers |= dict.fromkeys((s.name for s in provider.provides), os.path.normpath(group.interface))
    for fragment in fragments:
        for symbol in fragment.requires:
            header = headers.get(symbol.name)
            if header is not None and header not in includes[fragment.key]:
                raise BuildError(
                    f"{fragment.key} requires {demangle(symbol.name)} without including its interface {header}",
                    hint=f'#include "{header}" instead of declaring it again: only so are its types checked',
                )


def _check_weak(fragments: Sequence[Fragment], interface: set[str]) -> None:
    """The linker keeps the first of several weak definitions in silence, so all must be the same."""
    bodies: dict[str, dict[str, list[Fragment]]] = defaultdict(lambda: defaultdict(list))
    strong: dict[str, list[Fragment]] = defaultdict(list)
    for fragment in fragments:
        for name, body in fragment.weak:
            if name != fragment.entry:
                bodies[name][body].append(fragment)
        for symbol in fragment.provides:
            if not symbol.weak:
                strong[symbol.name].append(fragment)
    for name in sorted(bodies.keys() & strong.keys()):  # a strong definition wins over weak ones, whatever they say
        for one in strong[name]:
            for other in (f for several in bodies[name].values() for f in several):
                if one is not other and _can_meet(one, other, interface):
                    raise BuildError(
                        f"{demangle(name)} is inline in {other.key}, but not in {one.key}",
                        hint="define it inline in both, in one header, or rename one of them",
                    )
    for name, variants in bodies.items():
        for some, others in combinations(variants.values(), 2):
            pair = next(((a, b) for a in some for b in others if _can_meet(a, b, interface)), None)
            if pair:
                raise BuildError(
                    f"{demangle(plain_name(name))} is defined differently in {pair[0].key} and {pair[1].key}",
                    hint="a link keeps one of them for both: give them different names, or put them into namespaces "
                    "of their own or an anonymous one",
                )


def _can_meet(a: Fragment, b: Fragment, interface: set[str]) -> bool:
    """Whether one plan can hold both: not two kernels, two choices for one symbol, or two values of one parameter."""
    if a.role is b.role is Role.ENTRYPOINT:
        return False
    if {s.name for s in a.provides} & {s.name for s in b.provides} & interface:
        return False
    return a.key.agrees(dict(b.key.parameters))


def _check_layouts(fragments: Sequence[Fragment]) -> None:
    providers = {(s.name, s.layout): (s, f) for f in fragments for s in f.provides}
    by_name = defaultdict(list)
    for symbol, fragment in providers.values():
        by_name[symbol.name].append((symbol, fragment))
    for fragment in fragments:
        for required in fragment.requires:
            for provided, provider in by_name[required.name]:
                if not compatible(required, provided):
                    raise BuildError(
                        f"{fragment.key} requires {demangle(required.name)} with layout {required.layout}, but "
                        f"{provider.key} provides it with layout {provided.layout}",
                        hint="declare it once, in an interface header that both include",
                    )


def _unmet(family: FamilyRecord, fragments: Sequence[Fragment]) -> Iterable[str]:
    """Requirements that no fragment meets; those of a group that callers supply cannot be told from them."""
    if any(group.supplied for group in family.groups):
        return
    provided = {symbol.name for fragment in fragments for symbol in fragment.provides}
    unmet: dict[str, Fragment] = {}
    for fragment in fragments:
        for symbol in fragment.requires:
            if symbol.name not in provided:
                unmet.setdefault(symbol.name, fragment)
    for name, fragment in sorted(unmet.items()):
        near = [(s, f) for f in fragments for s in f.provides if base_name(s.name) == base_name(name)]
        beside = f"; {near[0][1].key} provides {demangle(near[0][0].name)}" if near else ""
        yield f"{demangle(name)} is required by {fragment.key}, and no fragment of {family.name} provides it{beside}"


def _strong_helpers(fragments: Sequence[Fragment], interface: set[str]) -> Iterable[str]:
    owners: dict[str, list[Fragment]] = defaultdict(list)
    called = {
        base_name(name) for name in interface
    }  # an overload of an interface is no helper, but a slip in its types
    for fragment in fragments:
        for symbol in fragment.provides:
            if not symbol.weak and base_name(symbol.name) not in called and symbol.kind is not SymbolKind.KERNEL:
                owners[symbol.name].append(fragment)
    for name, several in sorted(owners.items()):
        if len(several) > 1:
            yield (
                f"{demangle(name)} is defined in {len(several)} fragments, {several[0].key} and {several[1].key} among "
                "them: two of them do not link together; make it inline or static"
            )
