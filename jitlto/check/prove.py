"""The proof of a family without a GPU: every kernel plans, every fragment is used, nothing is ambiguous.

All kernels are enumerated and planned by the planner itself, so the proof holds for what callers get.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from jitlto.base.mangling import demangle
from jitlto.base.text import pluralize
from jitlto.build.findings import Finding, Kind
from jitlto.build.proof import find_dead_ends
from jitlto.build.unused import find_unused
from jitlto.plan.enumeration import DeadEnd, Kernel, enumerate_kernels, find_user_symbols
from jitlto.record.exclusions import Exclusion, cover
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import FragmentKey, Role
from jitlto.record.index import sorted_values
from jitlto.runtime.family import KernelFamily


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
    failures = find_dead_ends(family.index, ends)
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
        (notes if callers else failures).extend(find_unused(family.index, fragments, reached, reached_or_failed))
    notes += _mixed(planned)
    excluded, gaps = _gaps(family.record, planned, ends)
    notes += excluded
    (failures if complete else notes).extend(gaps)
    made = tuple(planned), tuple(failures), tuple(notes)
    return FamilyProof(family.name, len(fragments), *made, reached_or_failed)


def _supplied(family: str, planned: Iterable[Kernel]) -> Iterator[Finding]:
    counts = Counter(symbol.name for kernel in planned for symbol in kernel.user_symbols)
    for name, count in sorted(counts.items()):
        message = f"callers supply {demangle(name)} at run time, for {pluralize(count, 'kernel')}"
        yield Finding(Kind.SUPPLIED, message, None, family)


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
    failing = {pair for end in ends for pair in product(end.configuration.items(), repeat=2)}
    excluded: dict[str, list[str]] = defaultdict(list)
    gaps = []
    for group in sorted(own):
        exclusions = list(_exclusions(record, members[group]))
        for pair in sorted({*product(own[group], free[group])} - together[group] - failing):
            (a, x), (b, y) = pair
            both = f"{a}={x} with {b}={y}"
            if any(cover(exclude, values, dict(pair)) for exclude, values in exclusions):
                excluded[group].append(both)
            else:
                gaps.append(Finding(Kind.GAP, f"no kernel of {group} has {both}", None, group, dict(pair)))
    notes = []
    for group, pairs in excluded.items():
        named = ", ".join(pairs[:3]) + ", ..." * (len(pairs) > 3)
        what = f"the family excludes {pluralize(len(pairs), 'pair')} of values from {group}: {named}"
        notes.append(Finding(Kind.EXCLUDED, what, None, group))
    return notes, gaps


def _exclusions(
    record: FamilyRecord, members: Mapping[str, Iterable[FragmentKey]]
) -> Iterator[tuple[Collection[Exclusion], Mapping[str, Sequence[str]]]]:
    """Yield the exclusions of each group that has any, and the values of its parameters."""
    for name, keys in members.items():
        group = record.group(name)
        if group is not None and group.exclude:
            yield (
                group.exclude,
                sorted_values((parameter, (value,)) for key in keys for parameter, value in key.parameters),
            )
