"""The proof of a build: every kernel of its families plans, by the planner itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import (
    AmbiguousConfigurationError,
    BuildError,
    InterfaceMismatchError,
    JitltoError,
    LinkError,
    MissingProviderError,
    PlanError,
    UnknownValueError,
)
from jitlto.base.mangling import base_name, demangle
from jitlto.base.text import pluralize
from jitlto.build.findings import Finding, Kind, group_findings, message_of
from jitlto.build.interfaces import Show
from jitlto.build.proofs import Proofs
from jitlto.build.unused import find_unused
from jitlto.plan.enumeration import DeadEnd, enumerate_kernels, find_user_symbols
from jitlto.record.check_result import Cause
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Fragment, FragmentKey, Role, SymbolKind
from jitlto.record.index import Index, agrees

_Provided: TypeAlias = tuple[FragmentKey, str]  # a fragment, and a symbol that it provides

#: The most kernels of a family of which each is planned; of what exceeds them, a covering set is.
MOST_KERNELS = 10_000
_MOST_PLACES = 3


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
            "\n".join([what, *(line for number, cause in enumerate(several, 1) for line in _describe(number, cause))]),
            hint="no database was written; with --allow-incomplete (allow_incomplete=True) these are warnings",
        )
        self.causes = {family: tuple(each) for family, each in causes.items()}


def _describe(number: int, cause: Cause) -> Iterator[str]:
    yield f"\n{number}. {cause.message} [{cause.code}]"
    if cause.hint:
        yield f"   {cause.hint}"
    for place in cause.at[:_MOST_PLACES]:
        values = " ".join(f"{name}={value}" for name, value in place.configuration.items())
        yield f"   at {place.subject.partition('[')[0]}: {values}".rstrip(": ")
    if cause.count > _MOST_PLACES:
        yield f"   and {cause.count - _MOST_PLACES} more"


def prove_once(
    advice: list[str],
    families: Sequence[FamilyRecord],
    fragments: Sequence[Fragment],
    gaps: Sequence[FragmentKey],
    store: CacheDir | None,
    digest: str,
    show: Show = lambda *_: "",
    *,
    allow_incomplete: bool,
) -> None:
    """Do what :func:`prove` does, unless it had nothing to say of a database with the same logical digest.

    Args:
        advice: What is added to.
        families, fragments, gaps, show, allow_incomplete: As for :func:`prove`.
        store: Where proofs are kept; None to keep none.
        digest: That of the database.
    """
    proofs = Proofs(store)
    key = proofs.key("plans", digest)
    if proofs.has(key):
        return
    found = prove(families, fragments, gaps, show, allow_incomplete=allow_incomplete)
    advice += found
    if not found:
        proofs.add(key)


def prove(
    families: Sequence[FamilyRecord],
    fragments: Sequence[Fragment],
    gaps: Sequence[FragmentKey] = (),
    show: Show = lambda *_: "",
    *,
    allow_incomplete: bool = False,
) -> list[str]:
    """Plan every kernel of the families of a database.

    Args:
        families: Their records.
        fragments: All of the database.
        gaps: Fragments that a merge left out, as requested. Kernels that lack nothing else are left out too.
        show: See :data:`~jitlto.build.interfaces.Show`.
        allow_incomplete: Return as advice what would be an error.

    Returns:
        Advice on fragments that no kernel contains.

    Raises:
        UnplannedKernelsError: If something that a kernel requires is missing, defined twice or ambiguous.
        BuildError: If two groups of a kernel set one link option differently.
    """
    failed: dict[str, Sequence[Cause]] = {}
    reached: set[FragmentKey] = set()
    seen: set[FragmentKey] = set()
    indices: dict[str, Index] = {}
    records = {family.name: family for family in families}
    families = [family.with_used(records) for family in families]
    for family in families:
        names = (family.name, *family.uses)
        own = family.select(fragments)
        index = indices[family.name] = Index(own, [key for key in gaps if key.family in names])
        ends = _plan(family, index, reached)
        seen.update(fragment.key for end in ends for fragment in end.fragments)
        if found := find_dead_ends(index, [end for end in ends if not _is_left_out(index, end)], show):
            failed[family.name] = group_findings(found)
    if failed and not allow_incomplete:
        raise UnplannedKernelsError(failed)
    advice = [
        f"{name}: {cause.message} ({pluralize(cause.count, 'kernel')}); {cause.hint}"
        for name, causes in failed.items()
        for cause in causes
    ]
    for family in families:
        advice += _report_unused(family, indices[family.name], fragments, reached, seen | reached)
    return advice


def _plan(family: FamilyRecord, index: Index, reached: set[FragmentKey]) -> list[DeadEnd]:
    """Plan the kernels of a family, and add the device fragments in them to ``reached``."""
    ends = []
    groups_disagree = family.groups_disagree()
    for each in enumerate_kernels(index, find_user_symbols(family, index), MOST_KERNELS):
        if isinstance(each, DeadEnd):
            ends.append(each)
            continue
        reached.update([fragment.key for fragment in each.resolution.device])
        if groups_disagree:
            try:
                family.link_options(each.resolution.fragments)
            except PlanError as error:
                what = f"{error.what} (kernel {each.resolution.entry.key})"
                hint = "set it for one of the groups, or to one value in all groups of a kernel"
                raise BuildError(what, code="build-conflicting-link-options", where=family.name, hint=hint) from None
    return ends


def _is_left_out(index: Index, end: DeadEnd) -> bool:
    return any(agrees(key, dict(end.configuration)) for key in index.gaps)


def _report_unused(
    family: FamilyRecord, index: Index, fragments: Sequence[Fragment], reached: set[FragmentKey], seen: set[FragmentKey]
) -> Iterator[str]:
    """Report the device fragments of a family that no kernel contains, once for each cause.

    Callers' code may call any fragment of a family with a group that they supply.
    """
    own = [fragment for fragment in fragments if fragment.key.family == family.name]
    is_shared = not any(group.role is Role.ENTRYPOINT for group in family.groups)
    is_reached = any(fragment.key in reached for fragment in own)
    if index.gaps or any(group.supplied for group in family.groups) or (is_shared and not is_reached):
        return
    found = list(find_unused(index, own, reached, seen))
    for cause in group_findings(found):
        more = f" (and {pluralize(cause.count - 1, 'more fragment')} likewise)" if cause.count > 1 else ""
        yield f"{cause.message}{more}; {cause.hint}"


# --- why a kernel does not plan, for authors


def find_dead_ends(index: Index, ends: Sequence[DeadEnd], show: Show = lambda *_: "") -> list[Finding]:
    """Return what is wrong in configurations that give no kernel, each once, with the remedy for authors."""
    # A missing fragment is found once for each value of every parameter that has nothing to do with it.
    named = _named_alike(index) if ends else {}
    findings = (_dead_end(index, end, named, show) for end in ends)
    return list({(f.subject, f.message, tuple(f.configuration.items())): f for f in findings}.values())


def _dead_end(index: Index, end: DeadEnd, named: Mapping[str, Sequence[_Provided]], show: Show) -> Finding:
    error = end.error
    hint = error.hint
    group = end.entry.key.group
    if error.code == "plan-missing-provider" and not _is_left_out(index, end):
        near = next((several for name, several in named.items() if name in error.what), ())
        hint = _describe_near(near, end, show) if near else "declare a group that defines it, or that callers supply it"
    elif error.code == "plan-unknown-value-combination":  # its hint is for callers
        hint = f"add it to the matrix of the group that provides it, or leave it out of that of {group}"
    elif error.code == "plan-duplicate-definition" and "itself" not in error.what:
        hint = "make it inline or static in each, or declare it in an interface and define it in one group"
    elif error.code == "plan-ambiguous-fragments":
        hint = "leave it out of all but one, or tell them apart by a parameter that all have in key"
    subject, configuration = str(end.entry.key), dict(end.configuration)
    return Finding(_kind(error), message_of(error), hint, subject, configuration, code=error.code)


def _describe_near(near: Sequence[_Provided], end: DeadEnd, show: Show) -> str:
    """Say what those lack that provide a missing function with other types."""
    given = dict(end.configuration)
    apart = [[name for name, value in key.parameters if given.get(name, value) != value] for key, _ in near]
    if all(apart):
        names = min(apart, key=len)
        group, values = near[apart.index(names)][0].group, ", ".join(f"{name}={given[name]}" for name in names)
        return f"add {values} to the matrix of {group}, or leave it out of that of {end.entry.key.group}"
    key, name = next(provided for provided, names in zip(near, apart, strict=True) if not names)
    return f"{key} provides {demangle(name)}: give both the same types{show(key, name)}"


def _kind(error: JitltoError) -> Kind:
    if isinstance(error, LinkError):
        return Kind.LINK
    if isinstance(error, (MissingProviderError, UnknownValueError)):
        return Kind.REQUIREMENT
    if isinstance(error, AmbiguousConfigurationError):
        return Kind.AMBIGUITY
    return Kind.INTERFACE if isinstance(error, InterfaceMismatchError) else Kind.CONFLICT


def _named_alike(index: Index) -> dict[str, list[_Provided]]:
    """Return, for each function that nothing provides, the fragments that provide it with other types."""
    named: dict[str, list[_Provided]] = defaultdict(list)
    for name, providers in sorted(index.providers.items()):
        named[base_name(name)] += [(fragment.key, name) for fragment in providers]
    return {
        demangle(name): named[base_name(name)]
        for name in sorted(index.required)
        if not index.providers.get(name) and base_name(name) in named
    }


def shares_inline_functions(fragments: Sequence[Fragment]) -> bool:
    """Return whether fragments of several groups define one inline function each for themselves."""
    interface = {symbol.name for fragment in fragments for symbol in fragment.requires}
    groups: dict[str, set[str]] = defaultdict(set)
    for fragment in fragments:
        for symbol in fragment.provides:
            if symbol.weak and symbol.kind is not SymbolKind.KERNEL and symbol.name not in interface:
                groups[symbol.name].add(fragment.key.group)
    return any(len(several) > 1 for several in groups.values())
