"""Checks between the fragments of a family, so that they keep their meaning in every plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from jitlto.base.errors import BuildError
from jitlto.base.mangling import demangle
from jitlto.plan.resolve import is_compatible
from jitlto.record.fragment import Fragment, SymbolKind


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
