"""Checks between the fragments of a family, so that they keep their meaning in every plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from jitlto.base.errors import BuildError, FamilyError
from jitlto.base.mangling import demangle
from jitlto.base.text import suggest
from jitlto.plan.resolve import is_compatible
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Fragment, FragmentKey, SymbolKind


def check_layouts(fragments: Sequence[Fragment]) -> None:
    """Check that required symbols have the layouts of those that provide them.

    Raises:
        BuildError: If two differ.
    """
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


def shares_inline_functions(fragments: Sequence[Fragment]) -> bool:
    """Return whether fragments of several groups define one inline function each for themselves."""
    interface = {symbol.name for fragment in fragments for symbol in fragment.requires}
    groups: dict[str, set[str]] = defaultdict(set)
    for fragment in fragments:
        for symbol in fragment.provides:
            if symbol.weak and symbol.kind is not SymbolKind.KERNEL and symbol.name not in interface:
                groups[symbol.name].add(fragment.key.group)
    return any(len(several) > 1 for several in groups.values())


def check_deprecated(family: FamilyRecord, keys: Iterable[FragmentKey], where: str) -> None:
    """Check that the replacement of each deprecated value, or else the value itself, is a value of some fragment.

    Args:
        family: The family's record.
        keys: The fragments of the family, and of those that it uses.
        where: The family's declaration.

    Raises:
        FamilyError: If callers who give the value, or follow the warning, could not be served.
    """
    if not family.deprecated:
        return
    values: dict[str, set[str]] = defaultdict(set)
    for key in keys:
        if key.family in (family.name, *family.uses):
            for name, value in key.parameters:
                values[name].add(value)
    for each in family.deprecated:
        wanted = each.use or each.value
        if wanted not in values.get(each.parameter, ()):
            what = f"deprecated value {each.parameter}={each.value}: no fragment has {each.parameter}={wanted}"
            if each.parameter in values:
                known = values[each.parameter]
                hint = suggest(wanted, known, f"the values of {each.parameter} are {', '.join(sorted(known))}")
            else:
                hint = suggest(each.parameter, values, f"the parameters are {', '.join(sorted(values)) or 'none'}")
            raise FamilyError(what, code="family-deprecated", where=where, hint=hint)
