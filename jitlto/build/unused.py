"""Device fragments that no kernel contains, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set

from jitlto.base.mangling import base_name, demangle
from jitlto.base.types import is_same_value
from jitlto.build.findings import Finding, Kind
from jitlto.record.fragment import Fragment, FragmentKey, Role
from jitlto.record.index import Index


def find_unused(
    index: Index, fragments: Sequence[Fragment], used: Set[FragmentKey], seen: Set[FragmentKey]
) -> Iterator[Finding]:
    """Find the device fragments that no kernel contains, except those of kernels that fail to plan.

    Args:
        used: The fragments that kernels contain.
        seen: The same, with those of kernels that fail to plan.
    """
    unused = [f for f in fragments if f.role is Role.DEVICE and f.key not in seen]
    if not unused:
        return
    callers = _Callers(index, fragments)
    for fragment in unused:
        why, hint = _why_unused(callers, fragment, used)
        message = f"no kernel contains {fragment.key}: {why}"
        yield Finding(Kind.UNUSED, message, hint, str(fragment.key), dict(fragment.key.parameters))


class _Callers:
    """The fragments that require symbols, and the entrypoints that define some themselves."""

    def __init__(self, index: Index, fragments: Sequence[Fragment]) -> None:
        self._requirers: dict[str, list[Fragment]] = defaultdict(list)
        for fragment in fragments:
            for symbol in fragment.requires:
                self._requirers[symbol.name].append(fragment)
        self._required: dict[str, list[str]] = defaultdict(list)  # by name without types
        for name in sorted(index.required):
            self._required[base_name(name)].append(name)
        self._definers: dict[str, Fragment] = {}
        for entry in index.entrypoints:
            for symbol in entry.provides:
                self._definers.setdefault(symbol.name, entry)

    def requiring(self, fragment: Fragment) -> Iterator[Fragment]:
        """Yield the fragments that require what a fragment provides."""
        for symbol in fragment.provides:
            yield from (other for other in self._requirers.get(symbol.name, ()) if other is not fragment)

    def definer(self, fragment: Fragment) -> Fragment | None:
        """Return the first entrypoint that defines itself what a fragment provides."""
        found = [self._definers[symbol.name] for symbol in fragment.provides if symbol.name in self._definers]
        return min(found, key=lambda entry: entry.key, default=None)

    def near(self, fragment: Fragment) -> tuple[Fragment, str] | None:
        """Return a symbol that differs from one of the fragment's in its types only, after a fragment requiring it."""
        provides = {symbol.name for symbol in fragment.provides}
        named = {name for own in provides for name in self._required.get(base_name(own), ())} - provides
        return (self._requirers[min(named)][0], min(named)) if named else None


def _why_unused(callers: _Callers, fragment: Fragment, used: Set[FragmentKey]) -> tuple[str, str]:
    remedy = "leave it out of the matrix, or let a kernel call it"
    if not fragment.provides:
        return "it defines nothing that another fragment could call", "define a non-static __device__ function in it"
    first = next(callers.requiring(fragment), None)
    if first is None:
        listed = ", ".join(demangle(symbol.name) for symbol in fragment.provides)
        if entry := callers.definer(fragment):
            remedy = "include the group's interface in the kernel, and not its implementation"
            return f"{entry.key} defines {listed} itself", remedy
        if near := callers.near(fragment):
            remedy = f"{near[0].key} requires {demangle(near[1])}: give both the same types"
        return f"no fragment requires {listed}", remedy
    for other in callers.requiring(fragment):
        if other.role is Role.ENTRYPOINT or other.key in used:
            theirs = dict(other.key.parameters)
            apart = [f"{n}={theirs[n]}" for n, value in fragment.key.parameters if theirs.get(n, value) != value]
            for name, value in fragment.key.parameters:
                if name in theirs and value != theirs[name] and is_same_value(value, theirs[name]):
                    remedy = f"{value} and {theirs[name]} are one type: spell {name} in one way in all matrices"
            if apart:
                return f"{other.key}, which requires its symbols, has {', '.join(apart)}", remedy
            return f"for {other.key}, which requires its symbols, the planner chooses a different fragment", remedy
    return f"only {first.key} requires its symbols, and no kernel contains that fragment either", remedy
