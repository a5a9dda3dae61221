"""Device fragments that no kernel contains, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set

from jitlto.base.mangling import demangle
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
    requirers: dict[str, list[Fragment]] = defaultdict(list)
    for fragment in fragments:
        for symbol in fragment.requires:
            requirers[symbol.name].append(fragment)
    for fragment in fragments:
        if fragment.role is Role.DEVICE and fragment.key not in seen:
            names = [symbol.name for symbol in fragment.provides]
            others = [other for name in names for other in requirers[name] if other is not fragment]
            owners = (e for e in index.entrypoints if not others and {s.name for s in e.provides} & set(names))
            why, hint = _why_unused(fragment, others, next(owners, None), used)
            message = f"no kernel contains {fragment.key}: {why}"
            yield Finding(Kind.UNUSED, message, hint, str(fragment.key), dict(fragment.key.parameters))


def _why_unused(
    fragment: Fragment, requirers: Sequence[Fragment], owner: Fragment | None, used: Set[FragmentKey]
) -> tuple[str, str]:
    """Return why no kernel contains a fragment, and the remedy.

    Args:
        requirers: The fragments that require what it provides.
        owner: An entrypoint that defines that itself.
        used: The fragments that kernels contain.
    """
    remedy = "leave it out of the matrix, or let a kernel call it"
    listed = ", ".join(demangle(symbol.name) for symbol in fragment.provides)
    if not listed:
        return "it defines nothing that another fragment could call", "define a non-static __device__ function in it"
    if owner:
        return f"{owner.key} defines {listed} itself", "include the interface in the kernel, and not its implementation"
    if not requirers:
        return f"no fragment requires {listed}", remedy
    first = next((each for each in requirers if each.role is Role.ENTRYPOINT or each.key in used), None)
    if first is None:
        return f"only {requirers[0].key} requires its symbols, and no kernel contains that fragment either", remedy
    theirs = dict(first.key.parameters)
    apart = [(name, value) for name, value in fragment.key.parameters if theirs.get(name, value) != value]
    for name, value in apart:
        if is_same_value(value, theirs[name]):
            remedy = f"{value} and {theirs[name]} are one type: spell {name} in one way in all matrices"
    has = ", ".join(f"{name}={theirs[name]}" for name, _ in apart)
    does = f"has {has}" if has else "is planned with a different fragment"
    return f"{first.key}, which requires its symbols, {does}", remedy
