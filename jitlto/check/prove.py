"""The proof of a family without a GPU: every kernel plans, every fragment is used, nothing is ambiguous.

All kernels are enumerated and planned by the planner itself, so the proof holds for what callers get.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from jitlto.base.mangling import demangle
from jitlto.base.text import pluralize
from jitlto.build.findings import Finding, Kind
from jitlto.build.proof import find_dead_ends
from jitlto.build.unused import find_unused
from jitlto.plan.enumeration import DeadEnd, Kernel, enumerate_kernels, find_user_symbols
from jitlto.record.fragment import FragmentKey, Role
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


def prove(family: KernelFamily, reached: frozenset[FragmentKey] = frozenset()) -> FamilyProof:
    """Plan all kernels of a family, and find fragments that no kernel uses.

    For every choice of parameter values that fragments offer, each requirement must have exactly one provider whose
    layout fits, and no function may be defined twice. Every device fragment must be in some kernel. A requirement that
    no fragment meets, but that a group without fragments declares, is left to callers and is a note. In a family with
    such a group, device fragments that no kernel contains are notes too, because callers' code may call them.

    Args:
        family: Only read; nothing is linked.
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
    made = tuple(planned), tuple(failures), tuple(notes)
    return FamilyProof(family.name, len(fragments), *made, reached_or_failed)


def _supplied(family: str, planned: Iterable[Kernel]) -> Iterator[Finding]:
    counts = Counter(symbol.name for kernel in planned for symbol in kernel.user_symbols)
    for name, count in sorted(counts.items()):
        message = f"callers supply {demangle(name)} at run time, for {pluralize(count, 'kernel')}"
        yield Finding(Kind.SUPPLIED, message, None, family)
