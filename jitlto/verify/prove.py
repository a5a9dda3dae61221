"""The proof of a family without a GPU: every kernel plans, every fragment is used, nothing is ambiguous.

All kernels are enumerated and planned by the planner itself, so that what is proved is what callers get.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from jitlto.errors import (
    AmbiguousConfigurationError,
    DatabaseError,
    InterfaceMismatchError,
    JitltoError,
    LinkError,
    MissingProviderError,
    UnknownValueError,
)
from jitlto.model.enumeration import DeadEnd, Kernel, enumerate_kernels, find_user_symbols
from jitlto.model.fragment import Fragment, FragmentKey, Role
from jitlto.model.mangling import base_name, demangle
from jitlto.model.resolve import Index
from jitlto.model.text import pluralize
from jitlto.runtime.family import KernelFamily
from jitlto.verify.findings import Finding, Kind, message_of


@dataclass(frozen=True, slots=True)
class FamilyProof:
    """The result of :func:`prove`."""

    family: str
    fragments: int
    kernels: tuple[Kernel, ...]
    failures: tuple[Finding, ...]
    notes: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        return not self.failures


def prove(family: KernelFamily, *, complete: bool = False) -> FamilyProof:
    """Plan all kernels of a family, and find fragments that no kernel uses.

    For every choice of parameter values that fragments offer, each requirement must have exactly one provider whose
    layout fits, and no function may be defined twice. Every device fragment must be in some kernel. A requirement that
    no fragment meets, and that a group without fragments declares, is left to callers: a note, not a failure. So is
    code that no kernel calls, in a family with such a group: callers may call it.

    Args:
        family: Read only; nothing is linked.
        complete: Whether gaps are failures: combinations that a device group's matrix leaves out.

    Raises:
        DatabaseError: If the database is one part of a build: what it lacks may be in another.
    """
    database = family.database
    if database.part is not None:
        what = f"only {database.part} of a build, whose parts can be checked together only"
        hint = "merge all parts with `jitlto merge`, and check the result"
        raise DatabaseError(what, code="database-part", where=str(database.path), hint=hint)
    fragments = family.database.fragments(family.name)
    found = list(enumerate_kernels(family.index, find_user_symbols(family.record, family.index)))
    planned = [each for each in found if isinstance(each, Kernel)]
    ends = [each for each in found if isinstance(each, DeadEnd)]
    # What is missing for one combination is missing again for each value of a parameter that has no part in it.
    distinct = {
        (f.subject, f.message, tuple(f.configuration.items())): f for f in (_dead_end(family.index, e) for e in ends)
    }
    failures = list(distinct.values())
    if not family.index.entrypoints:
        failures.append(
            Finding(Kind.EMPTY, "no entrypoint, and so no kernel", "declare one in family.toml", family.name)
        )
    notes = list(_supplied(family.name, planned))
    callers = any(group.supplied for group in family.record.groups)
    (notes if callers else failures).extend(_unused(family.index, fragments, planned, ends))
    notes += _mixed(planned)
    (failures if complete else notes).extend(_gaps(planned, ends))
    return FamilyProof(family.name, len(fragments), tuple(planned), tuple(failures), tuple(notes))


def _dead_end(index: Index, end: DeadEnd) -> Finding:
    error = end.error
    hint = error.hint
    if isinstance(error, MissingProviderError):
        near = _near_provided(index, error.what)
        hint = f"{near}: give both the same types" if near else "add a fragment that defines it to the family"
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
    """Return who provides a function with the same name but different types as one that ``message`` misses."""
    missing = [name for name in sorted(index.required) if not index.providers.get(name) and demangle(name) in message]
    for wanted in missing:
        for name, providers in sorted(index.providers.items()):
            if providers and base_name(name) == base_name(wanted):
                return f"{providers[0].key} provides {demangle(name)}"
    return None


def _supplied(family: str, planned: Iterable[Kernel]) -> Iterator[Finding]:
    counts: dict[str, int] = defaultdict(int)
    for kernel in planned:
        for symbol in kernel.user_symbols:
            counts[symbol.name] += 1
    for name, count in sorted(counts.items()):
        yield Finding(
            Kind.SUPPLIED, f"callers supply {demangle(name)} at run time, to {pluralize(count, 'kernel')}", None, family
        )


def _unused(
    index: Index, fragments: Iterable[Fragment], planned: Iterable[Kernel], ends: Iterable[DeadEnd]
) -> Iterator[Finding]:
    """The device fragments that no kernel contains, but for those of kernels that fail, which are said already."""
    used = {fragment.key for kernel in planned for fragment in kernel.resolution.device}
    seen = used.union(fragment.key for end in ends for fragment in end.fragments)
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
    index: Index, fragment: Fragment, requirers: Mapping[str, list[Fragment]], used: set[FragmentKey]
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
        return f"no fragment requires {listed}", remedy
    for other in asking:
        if other.role is Role.ENTRYPOINT or other.key in used:
            theirs = dict(other.key.parameters)
            apart = [f"{n}={theirs[n]}" for n, value in fragment.key.parameters if theirs.get(n, value) != value]
            if apart:
                return f"{other.key}, which requires what it provides, has {', '.join(apart)}", remedy
            return f"where {other.key} requires what it provides, the planner takes another fragment", remedy
    return f"only {asking[0].key} requires what it provides, and no kernel contains that one either", remedy


def _mixed(planned: Iterable[Kernel]) -> Iterator[Finding]:
    """The parameters in which fragments of one kernel differ: for each entrypoint group and parameter, one kernel."""
    said: dict[tuple[str, str], Finding] = {}
    for kernel in planned:
        first: dict[str, Fragment] = {}
        for fragment in kernel.resolution.fragments:
            for name, value in fragment.key.parameters:
                other = first.setdefault(name, fragment)
                group = kernel.resolution.entry.key.group
                if dict(other.key.parameters)[name] != value and (group, name) not in said:
                    message = f"a kernel of {group} takes {other.key} and {fragment.key}: callers cannot give {name}"
                    said[group, name] = Finding(
                        Kind.MIXED, message, None, str(kernel.resolution.entry.key), kernel.configuration
                    )
    yield from said.values()


def _gaps(planned: Iterable[Kernel], ends: Iterable[DeadEnd]) -> Iterator[Finding]:
    """A value of an entrypoint's own parameter and one of another parameter that occur, and never together."""
    own: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    free: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    together: dict[str, set[tuple[str, str, str, str]]] = defaultdict(set)
    for kernel in planned:
        entry = kernel.resolution.entry.key
        mine = dict(entry.parameters)
        others = [(n, v) for n, v in kernel.configuration.items() if n not in mine]
        for name, value in mine.items():
            own[entry.group][name].add(value)
            together[entry.group].update((name, value, *other) for other in others)
        for name, value in others:
            free[entry.group][name].add(value)
    failing = [set(end.configuration.items()) for end in ends]
    for group in sorted(own):
        for a, some in sorted(own[group].items()):
            for b, several in sorted(free[group].items()):
                for x in sorted(some):
                    for y in sorted(several):
                        pair = {(a, x), (b, y)}
                        if (a, x, b, y) in together[group] or any(pair <= combination for combination in failing):
                            continue
                        message = f"no kernel of {group} has {a}={x} with {b}={y}"
                        yield Finding(Kind.GAP, message, None, group, {a: x, b: y})
