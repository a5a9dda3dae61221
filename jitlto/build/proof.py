"""The proof of a database without a GPU: every kernel plans, every fragment is used, nothing is doubled or ambiguous.

Builds and merges prove what they write, checks what they read. All kernels are enumerated and planned by the planner
itself, so the proof holds for what callers get.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from jitlto.base.errors import (
    AmbiguousConfigurationError,
    BuildError,
    InterfaceMismatchError,
    LinkError,
    MissingProviderError,
    UnknownValueError,
)
from jitlto.base.mangling import base_name, demangle
from jitlto.base.text import pluralize
from jitlto.build.findings import Finding, Kind, describe_causes, group_findings, message_of
from jitlto.build.interfaces import Show
from jitlto.build.proofs import Proofs
from jitlto.database import FragmentDatabase
from jitlto.database.index import Index
from jitlto.plan.enumeration import DeadEnd, Kernel, enumerate_kernels
from jitlto.record.check_result import Cause
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Fragment, FragmentKey, Role

#: The most kernels of a family of which a build plans each; of what exceeds them, it plans a covering set.
MOST_KERNELS = 10_000


@dataclass(frozen=True, slots=True)
class FamilyProof:
    """What :func:`prove` found of a family."""

    family: str
    fragments: int
    kernels: tuple[Kernel, ...]
    failures: tuple[Finding, ...]
    notes: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        return not self.failures


class UnplannedKernelsError(BuildError):
    """Kernels of a build that no configuration plans.

    Args:
        causes: By family, the most frequent first; at least one.
    """

    code = "build-unplanned-kernels"

    def __init__(self, causes: Mapping[str, Sequence[Cause]]) -> None:
        several = [cause for of_family in causes.values() for cause in of_family]
        failed = pluralize(sum(cause.count for cause in several), "kernel")
        what = f"{failed} of {', '.join(causes)} cannot be planned, {pluralize(len(several), 'cause')}"
        super().__init__(
            describe_causes(what, several),
            hint="no database was written; with --allow-incomplete (allow_incomplete=True) these are warnings",
        )
        self.causes = {family: tuple(each) for family, each in causes.items()}


def prove_once(
    proofs: Proofs,
    advice: list[str],
    fragments: list[Fragment],
    path: Path,
    digest: str,
    show: Show = lambda *_: "",
    *,
    allow_incomplete: bool,
) -> None:
    """Do what :func:`require_kernels` does, unless it had nothing to say of a database with the same logical digest.

    Args:
        proofs: What was proved before, which is added to.
        advice: What is added to.
        fragments: Those of the database, sorted by key.
        path, digest: The database.
        show, allow_incomplete: As for :func:`require_kernels`.
    """
    key = proofs.key("plans", digest)
    if proofs.has(key):
        return
    with FragmentDatabase(path, fragments) as database:
        found = require_kernels(database, show, allow_incomplete=allow_incomplete)
    advice += found
    if not found:
        proofs.add(key)


def require_kernels(
    database: FragmentDatabase, show: Show = lambda *_: "", *, allow_incomplete: bool = False
) -> list[str]:
    """Require that every kernel of a database plans.

    Args:
        database: Its families may have so many kernels that only a covering set is planned.
        show: See :data:`~jitlto.build.interfaces.Show`.
        allow_incomplete: Return as advice what would be an error.

    Returns:
        Advice on fragments that no kernel contains.

    Raises:
        UnplannedKernelsError: If something that a kernel requires is missing, defined twice or ambiguous.
    """
    failed: dict[str, Sequence[Cause]] = {}
    unused: list[Cause] = []
    for name, proof in prove(database, most=MOST_KERNELS, show=show).items():
        of_kind = {kind: [f for f in proof.failures if f.kind is kind] for kind in (Kind.UNUSED, Kind.EMPTY)}
        ends = [f for f in proof.failures if f.kind not in of_kind]
        if ends:
            failed[name] = group_findings(ends)
        unused += group_findings(of_kind[Kind.UNUSED])
    if failed and not allow_incomplete:
        raise UnplannedKernelsError(failed)
    advice = [
        f"{name}: {cause.message} ({pluralize(cause.count, 'kernel')}); {cause.hint}"
        for name, causes in failed.items()
        for cause in causes
    ]
    for cause in unused:
        more = f" (and {pluralize(cause.count - 1, 'more fragment')} likewise)" if cause.count > 1 else ""
        advice.append(f"{cause.message}{more}; {cause.hint}")
    return advice


def prove(
    database: FragmentDatabase, names: Iterable[str] = (), *, most: int | None = None, show: Show = lambda *_: ""
) -> dict[str, FamilyProof]:
    """Plan all kernels of families, and find fragments that no kernel uses. Nothing is linked.

    For every choice of parameter values that fragments offer, each requirement must have exactly one provider whose
    layout fits, and no function may be defined twice. Every device fragment must be in some kernel. A requirement that
    no fragment meets, but that a group without fragments declares, is left to callers and is a note. In a family with
    such a group, device fragments that no kernel contains are notes too, because callers' code may call them.

    Args:
        names: The families; by default all.
        most: See :func:`~jitlto.plan.enumeration.enumerate_kernels`.
        show: See :data:`~jitlto.build.interfaces.Show`.
    """

    @cache
    def plan(name: str) -> list[Kernel | DeadEnd]:
        return list(enumerate_kernels(database.index(name), most))

    proofs = {}
    for name in names or sorted(database.families):
        users = [user for user, record in database.families.items() if name in record.uses]
        proofs[name] = _prove(database, name, plan(name), [each for user in users for each in plan(user)], show)
    return proofs


def _prove(
    database: FragmentDatabase,
    name: str,
    found: Sequence[Kernel | DeadEnd],
    elsewhere: Sequence[Kernel | DeadEnd],
    show: Show,
) -> FamilyProof:
    """Prove one family from its kernels and dead ends, and from those of families that use it."""
    index, own = database.index(name), database.fragments(name)
    record = index.record
    planned = tuple(each for each in found if isinstance(each, Kernel))
    failures = _explain(index, [each for each in found if isinstance(each, DeadEnd)], show)
    notes = list(_list_supplied(record, planned))
    is_shared = bool(record.groups) and not any(group.role is Role.ENTRYPOINT for group in record.groups)
    if is_shared:
        message = "the family has no entrypoint: its groups are for families that use it"
        notes.append(Finding(Kind.EMPTY, message, None, name))
    elif not index.entrypoints:
        message = "the family has no entrypoint, and therefore no kernel"
        failures.append(Finding(Kind.EMPTY, message, "declare an entrypoint in family.toml", name))
    used, seen = set[FragmentKey](), set[FragmentKey]()
    for each in chain(found, elsewhere):
        if isinstance(each, Kernel):
            used.update([fragment.key for fragment in each.resolution.device])
        else:
            seen.update([fragment.key for fragment in each.fragments])
    # Of shared groups that nobody here calls, the users may be in other databases.
    if not (is_shared and used.isdisjoint(fragment.key for fragment in own)):
        callers = any(group.supplied for group in record.groups)
        (notes if callers else failures).extend(_find_unused(own, used | seen))
    return FamilyProof(name, len(own), planned, tuple(failures), tuple(notes))


def _list_supplied(family: FamilyRecord, planned: Iterable[Kernel]) -> Iterator[Finding]:
    counts = Counter(symbol.name for kernel in planned for symbol in kernel.user_symbols)
    groups = family.supplied_groups()
    for name, count in sorted(counts.items()):
        whose = " or ".join(group.name for group in groups(name))
        message = f"callers supply {demangle(name)} of {whose} at run time, for {pluralize(count, 'kernel')}"
        yield Finding(Kind.SUPPLIED, message, None, family.name)


# --- why a kernel does not plan, for authors

_KINDS = {LinkError: Kind.LINK, MissingProviderError: Kind.REQUIREMENT, UnknownValueError: Kind.REQUIREMENT,
          AmbiguousConfigurationError: Kind.AMBIGUITY, InterfaceMismatchError: Kind.INTERFACE}  # fmt: skip


def _explain(index: Index, ends: Iterable[DeadEnd], show: Show) -> list[Finding]:
    """Return what is wrong in configurations that give no kernel, each once, with the remedy for authors."""
    found: dict[object, Finding] = {}
    for end in ends:
        error, subject, configuration = end.error, str(end.entry.key), dict(end.configuration)
        message = message_of(error)
        # A missing fragment is found once for each value of every parameter that has nothing to do with it.
        place = (subject, message, *configuration.items())
        if place not in found:
            kind, hint = _KINDS.get(type(error), Kind.CONFLICT), _remedy(index, end, show)
            found[place] = Finding(kind, message, hint, subject, configuration, code=error.code)
    return list(found.values())


def _remedy(index: Index, end: DeadEnd, show: Show) -> str | None:
    error, group = end.error, end.entry.key.group
    if error.code == "plan-missing-provider":
        return _remedy_missing(index, end, show)
    if error.code == "plan-unknown-value-combination":  # its hint is for callers
        return f"add it to the matrix of the group that provides it, or leave it out of that of {group}"
    if error.code == "plan-duplicate-definition" and "itself" not in error.what:
        return "make it inline or static in each, or declare it in an interface and define it in one group"
    if error.code == "plan-ambiguous-fragments":
        return "leave it out of all but one, or tell them apart by a parameter that all have in key"
    return error.hint


def _remedy_missing(index: Index, end: DeadEnd, show: Show) -> str:
    """Say what the nearest fragment lacks that provides a missing function with other types."""
    near = []
    for name, several in sorted(index.providers.items()) if end.missing else ():
        if base_name(name) == base_name(end.missing):
            for key in (fragment.key for fragment in several):
                apart = [n for n, value in key.parameters if end.configuration.get(n, value) != value]
                near.append((len(apart), key, name, apart))
    if not near:
        return "declare a group that defines it, or that callers supply it"
    _, key, name, apart = min(near, key=lambda each: each[0])
    if not apart:
        return f"{key} provides {demangle(name)}: give both the same types{show(key, name)}"
    values = ", ".join(f"{each}={end.configuration[each]}" for each in apart)
    return f"add {values} to the matrix of {key.group}, or leave it out of that of {end.entry.key.group}"


# --- why no kernel contains a fragment


def _find_unused(fragments: Sequence[Fragment], seen: Set[FragmentKey]) -> Iterator[Finding]:
    """Find the device fragments that no kernel contains, except those of kernels that fail to plan, all ``seen``."""
    requirers: dict[str, list[Fragment]] = defaultdict(list)
    for fragment in fragments:
        for symbol in fragment.requires:
            requirers[symbol.name].append(fragment)
    for fragment in fragments:
        if fragment.role is Role.DEVICE and fragment.key not in seen:
            names = [symbol.name for symbol in fragment.provides]
            other = next((each for name in names for each in requirers[name] if each is not fragment), None)
            message = f"no kernel contains {fragment.key}: {_why_unused(fragment, other)}"
            hint = "leave it out of the matrix, or let a kernel call it"
            yield Finding(Kind.UNUSED, message, hint, str(fragment.key), dict(fragment.key.parameters))


def _why_unused(fragment: Fragment, requirer: Fragment | None) -> str:
    if requirer is None:
        listed = ", ".join(demangle(symbol.name) for symbol in fragment.provides)
        return f"no fragment requires {listed or 'anything of it'}"
    theirs = dict(requirer.key.parameters)
    apart = [name for name, value in fragment.key.parameters if theirs.get(name, value) != value]
    has = ", ".join(f"{name}={theirs[name]}" for name in apart)
    return f"{requirer.key}, which requires its symbols, {f'has {has}' if has else 'is not planned with it'}"
