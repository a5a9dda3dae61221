"""The proof of a family without a GPU: every kernel plans, every fragment is used, nothing is ambiguous.

All kernels are enumerated and planned by the planner itself, so the proof holds for what callers get.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import product

from jitlto.errors import (
    AmbiguousConfigurationError,
    InterfaceMismatchError,
    JitltoError,
    LinkError,
    MissingProviderError,
    UnknownValueError,
)
from jitlto.model.enumeration import DeadEnd, Kernel, enumerate_kernels, find_user_symbols
from jitlto.model.exclusions import cover
from jitlto.model.family_record import FamilyRecord, GroupRecord
from jitlto.model.fragment import Fragment, FragmentKey, Role
from jitlto.model.mangling import base_name, demangle
from jitlto.model.resolve import Index, agrees
from jitlto.model.text import pluralize
from jitlto.model.types import is_same_value
from jitlto.runtime.family import KernelFamily
from jitlto.verify.findings import Finding, Kind, message_of
from jitlto.verify.same_code import find_same_code


@dataclass(frozen=True, slots=True)
class FamilyProof:
    """The result of :func:`prove`."""

    family: str
    fragments: int
    kernels: tuple[Kernel, ...]
    failures: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    reached: frozenset[FragmentKey] = frozenset()  # in kernels, or in those that do not plan

    @property
    def holds(self) -> bool:
        return not self.failures


def prove(
    family: KernelFamily, *, complete: bool = False, reached: frozenset[FragmentKey] = frozenset()
) -> FamilyProof:
    """Plan all kernels of a family, and find fragments that no kernel uses.

    For every choice of parameter values that fragments offer, each requirement must have exactly one provider whose
    layout fits, and no function may be defined twice. Every device fragment must be in some kernel. A requirement that
    no fragment meets, but that a group without fragments declares, is left to callers and is a note. In a family with
    such a group, device fragments that no kernel contains are notes too, because callers' code may call them.

    Args:
        family: Only read; nothing is linked.
        complete: Whether combinations that a device group's matrix leaves out are failures, unless it excludes them.
        reached: Fragments that are used by families that use this one.
    """
    fragments = family.database.fragments(family.name)
    found = list(enumerate_kernels(family.index, find_user_symbols(family.record, family.index)))
    planned = [each for each in found if isinstance(each, Kernel)]
    ends = [each for each in found if isinstance(each, DeadEnd)]
    # A missing fragment is found once for each value of every parameter that has nothing to do with it.
    distinct = {
        (f.subject, f.message, tuple(f.configuration.items())): f for f in (_dead_end(family.index, e) for e in ends)
    }
    failures = list(distinct.values())
    notes = list(_supplied(family.name, planned))
    groups = family.record.groups
    is_shared = bool(groups) and not any(group.role is Role.ENTRYPOINT for group in groups)
    if is_shared:
        message = "the family has no entrypoint: its groups are for families that use it"
        notes.append(Finding(Kind.EMPTY, message, None, family.name))
    elif not family.index.entrypoints:
        message = "the family has no entrypoint, and therefore no kernel"
        failures.append(Finding(Kind.EMPTY, message, "declare an entrypoint in family.toml", family.name))
    callers = any(group.supplied for group in family.record.groups)
    reached |= {f.key for kernel in planned for f in kernel.resolution.device}
    reached_or_failed = reached.union(fragment.key for end in ends for fragment in end.fragments)
    if reached or not is_shared:
        (notes if callers else failures).extend(_unused(family.index, fragments, reached, reached_or_failed))
    notes += _mixed(planned)
    notes += find_same_code(fragments)
    excluded, gaps = _gaps(family.record, planned, ends)
    notes += excluded
    (failures if complete else notes).extend(gaps)
    made = tuple(planned), tuple(failures), tuple(notes)
    return FamilyProof(family.name, len(fragments), *made, reached_or_failed)


def _dead_end(index: Index, end: DeadEnd) -> Finding:
    error = end.error
    hint = error.hint
    if isinstance(error, MissingProviderError) and not any(agrees(key, dict(end.configuration)) for key in index.gaps):
        near = _near_provided(index, error.what)
        hint = f"{near}: give both the same types" if near else "add a fragment that defines it to the family"
    elif error.code == "plan-unknown-value-combination":  # its hint is for callers
        hint = f"add it to the matrix of the group that provides it, or leave it out of that of {end.entry.key.group}"
    return Finding(_kind(error), message_of(error), hint, str(end.entry.key), dict(end.configuration), code=error.code)


def _kind(error: JitltoError) -> Kind:
    if isinstance(error, LinkError):
        return Kind.LINK
    if isinstance(error, (MissingProviderError, UnknownValueError)):
        return Kind.REQUIREMENT
    if isinstance(error, AmbiguousConfigurationError):
        return Kind.AMBIGUITY
    return Kind.INTERFACE if isinstance(error, InterfaceMismatchError) else Kind.CONFLICT


def _near_provided(index: Index, message: str) -> str | None:
    """Return which fragment provides a missing function that ``message`` names, but with different types."""
    missing = [name for name in sorted(index.required) if not index.providers.get(name) and demangle(name) in message]
    for wanted in missing:
        for name, providers in sorted(index.providers.items()):
            if providers and base_name(name) == base_name(wanted):
                return f"{providers[0].key} provides {demangle(name)}"
    return None


def _supplied(family: str, planned: Iterable[Kernel]) -> Iterator[Finding]:
    counts = Counter(symbol.name for kernel in planned for symbol in kernel.user_symbols)
    for name, count in sorted(counts.items()):
        message = f"callers supply {demangle(name)} at run time, for {pluralize(count, 'kernel')}"
        yield Finding(Kind.SUPPLIED, message, None, family)


def _unused(
    index: Index, fragments: Iterable[Fragment], used: Set[FragmentKey], seen: Set[FragmentKey]
) -> Iterator[Finding]:
    """Find the device fragments that no kernel contains, except those of kernels that fail to plan."""
    requirers: dict[str, list[Fragment]] = defaultdict(list)
    unused = []
    for fragment in fragments:
        for symbol in fragment.requires:
            requirers[symbol.name].append(fragment)
        if fragment.role is Role.DEVICE and fragment.key not in seen:
            unused.append(fragment)
    for fragment in unused:
        why, hint = _why_unused(index, fragment, requirers, used)
        message = f"no kernel contains {fragment.key}: {why}"
        yield Finding(Kind.UNUSED, message, hint, str(fragment.key), dict(fragment.key.parameters))


def _why_unused(
    index: Index, fragment: Fragment, requirers: Mapping[str, list[Fragment]], used: Set[FragmentKey]
) -> tuple[str, str]:
    provides = [symbol.name for symbol in fragment.provides]
    asking = list(dict.fromkeys(f for name in provides for f in requirers.get(name, ()) if f is not fragment))
    remedy = "leave it out of the matrix, or let a kernel call it"
    if not provides:
        return "it defines nothing that another fragment could call", "define a non-static __device__ function in it"
    if not asking:
        listed = ", ".join(map(demangle, provides))
        for wanted in sorted(index.required):
            if wanted not in provides and base_name(wanted) in map(base_name, provides):
                remedy = f"{requirers[wanted][0].key} requires {demangle(wanted)}: give both the same types"
                break
        for entry in index.entrypoints:
            if any(symbol.name in provides for symbol in entry.provides):
                remedy = "include the group's interface in the kernel, and not its implementation"
                return f"{entry.key} defines {listed} itself", remedy
        return f"no fragment requires {listed}", remedy
    for other in asking:
        if other.role is Role.ENTRYPOINT or other.key in used:
            theirs = dict(other.key.parameters)
            apart = [f"{n}={theirs[n]}" for n, value in fragment.key.parameters if theirs.get(n, value) != value]
            for name, value in fragment.key.parameters:
                if name in theirs and value != theirs[name] and is_same_value(value, theirs[name]):
                    remedy = f"{value} and {theirs[name]} are one type: spell {name} in one way in all matrices"
            if apart:
                return f"{other.key}, which requires its symbols, has {', '.join(apart)}", remedy
            return f"for {other.key}, which requires its symbols, the planner chooses a different fragment", remedy
    return f"only {asking[0].key} requires its symbols, and no kernel contains that fragment either", remedy


def _mixed(planned: Iterable[Kernel]) -> Iterator[Finding]:
    """Find parameters in which fragments of one kernel differ: one kernel for each entrypoint group and parameter."""
    found: set[tuple[str, str]] = set()
    for kernel in planned:
        entry = kernel.resolution.entry.key
        first: dict[str, tuple[FragmentKey, str]] = {}
        for fragment in kernel.resolution.fragments:
            for name, value in fragment.key.parameters:
                other, before = first.setdefault(name, (fragment.key, value))
                if before != value and (entry.group, name) not in found:
                    found.add((entry.group, name))
                    both = f"{other} and {fragment.key}"
                    message = f"a kernel of {entry.group} contains {both}: callers cannot set {name}"
                    yield Finding(Kind.MIXED, message, None, str(entry), kernel.configuration)


def _gaps(
    record: FamilyRecord, planned: Iterable[Kernel], ends: Iterable[DeadEnd]
) -> tuple[list[Finding], list[Finding]]:
    """Find a value of an entrypoint's own parameter and a value of a different parameter that never occur together.

    Returns:
        A finding for each entrypoint group of which the family excludes such pairs, and one for each other pair.
    """
    own: dict[str, set[tuple[str, str]]] = defaultdict(set)
    free: dict[str, set[tuple[str, str]]] = defaultdict(set)
    together: dict[str, set[tuple[tuple[str, str], tuple[str, str]]]] = defaultdict(set)
    members: dict[str, dict[str, set[FragmentKey]]] = defaultdict(lambda: defaultdict(set))
    for kernel in planned:
        entry = kernel.resolution.entry.key
        others = [(name, value) for name, value in kernel.configuration.items() if name not in dict(entry.parameters)]
        own[entry.group].update(entry.parameters)
        free[entry.group].update(others)
        together[entry.group].update(product(entry.parameters, others))
        for fragment in kernel.resolution.fragments:
            members[entry.group][fragment.key.group].add(fragment.key)
    failing = [end.configuration.items() for end in ends]
    excluded: dict[str, list[str]] = defaultdict(list)
    gaps = []
    for group in sorted(own):
        for pair in sorted({*product(own[group], free[group])} - together[group]):
            if any(combination >= {*pair} for combination in failing):
                continue
            (a, x), (b, y) = pair
            both = f"{a}={x} with {b}={y}"
            if any(_excludes(record.group(name), keys, dict(pair)) for name, keys in members[group].items()):
                excluded[group].append(both)
            else:
                gaps.append(Finding(Kind.GAP, f"no kernel of {group} has {both}", None, group, dict(pair)))
    notes = []
    for group, pairs in excluded.items():
        named = ", ".join(pairs[:3]) + ", ..." * (len(pairs) > 3)
        what = f"the family excludes {pluralize(len(pairs), 'pair')} of values from {group}: {named}"
        notes.append(Finding(Kind.EXCLUDED, what, None, group))
    return notes, gaps


def _excludes(group: GroupRecord | None, keys: Iterable[FragmentKey], pair: Mapping[str, str]) -> bool:
    """Return whether a group lacks every combination with a pair of values on purpose."""
    if group is None or not group.exclude:
        return False
    values: dict[str, set[str]] = defaultdict(set)
    for key in keys:
        for name, value in key.parameters:
            values[name].add(value)
    return cover(group.exclude, {name: sorted(several) for name, several in values.items()}, pair)
