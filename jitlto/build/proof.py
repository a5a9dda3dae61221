"""The proof of a database without a GPU: every kernel plans, every fragment is used, nothing is doubled or ambiguous.

Builds and merges prove what they write, checks what they read. All kernels are enumerated and planned by the planner
itself, so the proof holds for what callers get. What was proved before is in the user's cache, and in shared stores for
checks on other machines; failures are not: they are found again, with their messages.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from jitlto.base import __version__
from jitlto.base.cache_dir import CacheDir
from jitlto.base.diagnostic import Diagnostic, Location, Severity
from jitlto.base.errors import BuildError, JitltoError, PlanError
from jitlto.base.mangling import base_name, demangle
from jitlto.base.text import pluralize, suggest
from jitlto.build.cache.cache import Cache
from jitlto.build.causes import Found, found_in, group_causes
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.database import FragmentDatabase
from jitlto.database.index import Index
from jitlto.plan.enumeration import DeadEnd, Kernel, enumerate_kernels
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Fragment, FragmentKey, Role

if TYPE_CHECKING:  # not imported at run time, so that builds load no planner, and checks without a store not that
    from jitlto.plan.plan import Plan
    from jitlto.stores.shared import SharedStore

#: The folder of the entries in the cache directory.
ENTRIES = "proofs"
_SCHEMA = 4  # of what is proved
#: The most kernels of a family of which a build plans each; of what exceeds them, it plans a covering set.
MOST_KERNELS = 10_000
_FUNCTION = re.compile(r"(\w+)(?:<[^()]*>)?\(")
NOWHERE = RenderedFamilies(())  # what a database tells of where its fragments come from
_UNUSED, _EMPTY = "build-unused-fragment", "build-no-entrypoint"


class Proofs:
    """The proofs in the user's cache.

    Args:
        store: The cache directory; None to know and store nothing.
        stores: Shared stores, for what the directory lacks.
    """

    def __init__(self, store: CacheDir | None, stores: SharedStore | None = None) -> None:
        self._cache = Cache(store, stores) if store else None
        self._intact: set[str] = set()  # images that were read

    def key(self, of: str, *inputs: object) -> str:
        """Return the key of a proof, made from all that it depends on, as JSON values."""
        return hashlib.sha256(json.dumps([_SCHEMA, __version__, of, *inputs]).encode()).hexdigest()

    def plan_key(self, plan: Plan, of: str) -> str | None:
        """Return the key of a proof about a kernel; None if it cannot be linked, or an image is no longer as it was."""
        try:
            for image in plan.images:
                if image.sha256 not in self._intact:
                    plan.database.read(image)
                    self._intact.add(image.sha256)
        except JitltoError:
            return None  # whoever links it says why
        return self.key(of, plan.digest)

    def find(self, keys: Iterable[str | None]) -> dict[str | None, bytes]:
        """Return what is known of those that were proved before, by their keys."""
        found = self._cache.find(ENTRIES, [key for key in keys if key is not None]) if self._cache else {}
        return {key: data for key, (data, _) in found.items()}

    def add(self, key: str | None, known: bytes = b"") -> None:
        """Store that something is proved, and what is ``known`` of it."""
        if key is not None and self._cache is not None:
            self._cache.put(ENTRIES, key, known)
            self._cache.store.prune_if_due()


class Planned(msgspec.Struct, frozen=True):
    """The kernels of a database: how many each family has, and a family and the values of one."""

    kernels: dict[str, int] = {}
    example: tuple[str, dict[str, str]] | None = None

    def __str__(self) -> str:
        count = sum(self.kernels.values())
        some = "at least " if count >= MOST_KERNELS else ""
        return f" → {some}{pluralize(count, 'kernel')}" if count else ""


@dataclass(frozen=True, slots=True)
class FamilyProof:
    """What :func:`prove` found of a family."""

    family: str
    fragments: int
    kernels: tuple[Kernel, ...]
    failures: tuple[Found, ...]
    notes: tuple[Found, ...]

    @property
    def holds(self) -> bool:
        return not self.failures


def prove_once(
    proofs: Proofs,
    advice: list[Diagnostic],
    fragments: list[Fragment],
    path: Path,
    digest: str,
    places: RenderedFamilies = NOWHERE,
    *,
    allow_incomplete: bool,
) -> Planned:
    """Do what :func:`require_kernels` does, unless it had nothing to say of a database with the same logical digest.

    Args:
        proofs: What was proved before, which is added to.
        advice: What is added to.
        fragments: Those of the database, sorted by key.
        path, digest: The database.
        places, allow_incomplete: As for :func:`require_kernels`.
    """
    key = proofs.key("plans", digest)
    if known := proofs.find([key]).get(key):
        return msgspec.json.decode(known, type=Planned)
    with FragmentDatabase(path, fragments) as database:
        planned, found = require_kernels(database, places, allow_incomplete=allow_incomplete)
    advice += found
    if not found:
        proofs.add(key, msgspec.json.encode(planned))
    return planned


def require_kernels(
    database: FragmentDatabase, places: RenderedFamilies = NOWHERE, *, allow_incomplete: bool = False
) -> tuple[Planned, list[Diagnostic]]:
    """Require that every kernel of a database plans.

    Args:
        database: Its families may have so many kernels that only a covering set is planned.
        places: Where its fragments come from.
        allow_incomplete: Return as advice what would be an error.

    Returns:
        The kernels, and advice on fragments that no kernel contains.

    Raises:
        BuildError: If something that a kernel requires is missing, defined twice or ambiguous.
    """
    failed: dict[str, list[Found]] = {}
    unused: list[Found] = []
    proofs = prove(database, most=MOST_KERNELS, places=places)
    for name, proof in proofs.items():
        of_code = {code: [each for each in proof.failures if each[0].code == code] for code in (_UNUSED, _EMPTY)}
        if ends := [each for each in proof.failures if each[0].code not in of_code]:
            failed[name] = ends
        unused += of_code[_UNUSED]
    causes = group_causes(chain.from_iterable(failed.values()))
    if failed and not allow_incomplete:
        count = pluralize(sum(map(len, failed.values())), "kernel")
        what = f"{count} of {', '.join(failed)} cannot be planned, {pluralize(len(causes), 'cause')}"
        hint = "no database was written; with --allow-incomplete (allow_incomplete=True) these are warnings"
        raise BuildError(what, code="build-unplanned-kernels", hint=hint, causes=causes)
    kernels = [(name, kernel) for name, proof in proofs.items() for kernel in proof.kernels]
    planned = Planned(dict(Counter(name for name, _ in kernels)), _choose_example(database, kernels))
    return planned, [replace(cause, severity=Severity.WARNING) for cause in (*causes, *group_causes(unused))]


def _choose_example(
    database: FragmentDatabase, kernels: Iterable[tuple[str, Kernel]]
) -> tuple[str, dict[str, str]] | None:
    """Return a family and the values of a kernel of it to which callers add nothing; None if there is none."""
    for name, kernel in kernels:
        if not kernel.user_symbols:
            entrypoints = {fragment.key.group for fragment in database.index(name).entrypoints}
            entry = {"entry": kernel.resolution.entry.key.group} if len(entrypoints) > 1 else {}
            return name, {**entry, **kernel.configuration}
    return None


def check_interfaces(
    family: FamilyRecord,
    fragments: Sequence[Fragment],
    faults: Iterable[tuple[str, str]],
    places: RenderedFamilies = NOWHERE,
) -> None:
    """Check that what fragments require of each other is declared in interfaces.

    Args:
        faults: What the compiler did not find declared, see :class:`jitlto.build.interface_proof.InterfaceProof`.
        places: Where the fragments come from.

    Raises:
        BuildError: A fragment requires a symbol of a group that has no interface, or that its interface does not
            declare, also of one that callers supply.
    """
    providers: dict[str, dict[str, FragmentKey]] = defaultdict(dict)  # one of each group, whose interface all have
    for fragment in fragments:
        for symbol in fragment.provides:
            providers[symbol.name].setdefault(fragment.key.group, fragment.key)
    undeclared, suppliers = set(faults), family.supplied_groups()
    for key, name in ((fragment.key, symbol.name) for fragment in fragments for symbol in fragment.requires):
        owners = [(family.group(one.group), str(one)) for one in providers[name].values()]
        for group, owner in owners or [(each, each.name) for each in suppliers(name)]:
            what = f"{key} requires {demangle(name)} of {owner}"
            if group is not None and group.interface is None:
                hint = f'declare it in a header, and name that in the group\'s table: interface = "{group.name}.cuh"; '
                hint += "or write interface = false, and only its layout is compared"
                what += f", whose group {group.name} has no interface"
                raise BuildError(what, code="build-no-interface", where=places.origin(key, base_name(name)), hint=hint)
            if group and group.interface and (key.family, name) in undeclared:
                what += f", and the interface {group.interface} of {group.name} does not declare it"
                notes, hint = places.show(key, name), "declare it there and nowhere else"
                where = places.origin(key, base_name(name))
                raise BuildError(what, code="build-interface-undeclared", where=where, hint=hint, notes=notes)


def prove(
    database: FragmentDatabase,
    names: Iterable[str] = (),
    *,
    most: int | None = None,
    places: RenderedFamilies = NOWHERE,
) -> dict[str, FamilyProof]:
    """Plan all kernels of families, and find fragments that no kernel uses. Nothing is linked.

    For every choice of parameter values that fragments offer, each requirement must have exactly one provider whose
    layout fits, and no function may be defined twice. Every device fragment must be in some kernel. A requirement that
    no fragment meets, but that a group without fragments declares, is left to callers and is a note. In a family with
    such a group, device fragments that no kernel contains are notes too, because callers' code may call them.

    Args:
        names: The families; by default all.
        most: See :func:`~jitlto.plan.enumeration.enumerate_kernels`.
        places: Where its fragments come from.
    """

    @cache
    def plan(name: str) -> list[Kernel | DeadEnd]:
        return list(enumerate_kernels(database.index(name), most))

    proofs = {}
    for name in names or sorted(database.families):
        users = [user for user, record in database.families.items() if name in record.uses]
        proofs[name] = _prove(database, name, plan(name), [each for user in users for each in plan(user)], places)
    return proofs


def _prove(
    database: FragmentDatabase,
    name: str,
    found: Sequence[Kernel | DeadEnd],
    elsewhere: Sequence[Kernel | DeadEnd],
    places: RenderedFamilies,
) -> FamilyProof:
    """Prove one family from its kernels and dead ends, and from those of families that use it."""
    index, own = database.index(name), database.fragments(name)
    record = index.record
    planned = tuple(each for each in found if isinstance(each, Kernel))
    failures = _explain(index, [each for each in found if isinstance(each, DeadEnd)], places)
    notes = list(_list_supplied(record, planned))
    is_shared = bool(record.groups) and not any(group.role is Role.ENTRYPOINT for group in record.groups)
    if is_shared:
        message = "the family has no entrypoint: its groups are for families that use it"
        notes.append(_note(message, _EMPTY, name))
    elif not index.entrypoints:
        message = "the family has no entrypoint, and therefore no kernel"
        hint = "declare an entrypoint in family.toml"
        failures.append(found_in(Diagnostic.at(None, message, _EMPTY, hint=hint), name, {}))
    used, seen = set[FragmentKey](), set[FragmentKey]()
    for each in chain(found, elsewhere):
        if isinstance(each, Kernel):
            used.update([fragment.key for fragment in each.resolution.device])
        else:
            seen.update([fragment.key for fragment in each.fragments])
    # Of shared groups that nobody here calls, the users may be in other databases.
    if not (is_shared and used.isdisjoint(fragment.key for fragment in own)):
        callers = any(group.supplied for group in record.groups)
        severity = Severity.NOTE if callers else Severity.ERROR
        (notes if callers else failures).extend(_find_unused(own, used | seen, places, severity))
    return FamilyProof(name, len(own), planned, tuple(failures), tuple(notes))


def _note(message: str, code: str, family: str) -> Found:
    return found_in(Diagnostic.at(None, message, code, Severity.NOTE), family, {})


def _list_supplied(family: FamilyRecord, planned: Iterable[Kernel]) -> Iterator[Found]:
    counts = Counter(symbol.name for kernel in planned for symbol in kernel.user_symbols)
    groups = family.supplied_groups()
    for name, count in sorted(counts.items()):
        whose = " or ".join(group.name for group in groups(name))
        message = f"callers supply {demangle(name)} of {whose} at run time, for {pluralize(count, 'kernel')}"
        yield _note(message, "build-supplied", family.name)


# --- why a kernel does not plan, for authors


def _explain(index: Index, ends: Iterable[DeadEnd], places: RenderedFamilies) -> list[Found]:
    """Return what is wrong in configurations that give no kernel, each once, with the remedy for authors."""
    found: dict[object, Found] = {}
    for end in ends:
        error, subject, configuration = end.error, str(end.entry.key), dict(end.configuration)
        message = error.diagnostic.message
        # A missing fragment is found once for each value of every parameter that has nothing to do with it.
        place = (subject, message, *configuration.items())
        if place not in found:
            named = [fragment.key for fragment in end.fragments if str(fragment.key) in message]
            function = _FUNCTION.search(message)
            origin = places.origin((named or [end.entry.key])[-1], function[1] if function else "")
            hint = _remedy(error)
            one = Diagnostic.at(origin, message, error.code, hint=hint)
            if end.missing and error.code in ("plan-missing-provider", "plan-unknown-value-combination"):
                where, notes, hint = _remedy_missing(index, end, places)
                one = Diagnostic.at(where, message, error.code, notes=notes, hint=hint)
            found[place] = found_in(one, subject, configuration)
    return list(found.values())


def _remedy(error: PlanError) -> str | None:
    if error.code == "plan-duplicate-definition" and "itself" not in error.what:
        return "make it inline or static in each, or declare it in an interface and define it in one group"
    if error.code == "plan-ambiguous-fragments":
        return "leave it out of all but one, or tell them apart by a parameter that all have in key"
    return error.hint


def _remedy_missing(
    index: Index, end: DeadEnd, places: RenderedFamilies
) -> tuple[Location | None, Sequence[Diagnostic], str]:
    """Return the place, notes and remedy for a missing function: what the nearest fragment lacks with other types."""
    entry, near = end.entry.key, []
    for name, several in sorted(index.providers.items()) if end.missing else ():
        if base_name(name) == base_name(end.missing):
            for key in (fragment.key for fragment in several):
                apart = [n for n, value in key.parameters if end.configuration.get(n, value) != value]
                near.append((len(apart), key, name, apart))
    if not near:
        hint = "declare a group that defines it, or that callers supply it"
        return places.origin(entry, base_name(end.missing)), (), hint
    _, key, name, apart = min(near, key=lambda each: each[0])
    if not apart:
        hint = f"{key} provides {demangle(name)}: give both the same types"
        return places.origin(key, base_name(name)), places.show(key, name), hint
    wanting = (places.value(each.key, apart[0]) for each in end.fragments if apart[0] in dict(each.key.parameters))
    where = next(filter(None, wanting), places.origin(entry, base_name(end.missing)))
    known = {dict(each.parameters).get(apart[0], ""): each for _, each, *_ in near}
    similar = suggest(end.configuration[apart[0]], known)
    notes = [
        Diagnostic.note(place, f"{each.group} has {apart[0]}={value}")
        for value, each in known.items()
        if (place := places.value(each, apart[0])) and repr(value) in similar
    ]
    values = ", ".join(f"{each}={end.configuration[each]}" for each in apart)
    hint = f"{similar} add {values} to the matrix of {key.group}, or leave it out of that of {entry.group}"
    return where, notes, hint.strip()


# --- why no kernel contains a fragment


def _find_unused(
    fragments: Sequence[Fragment], seen: Set[FragmentKey], places: RenderedFamilies, severity: Severity
) -> Iterator[Found]:
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
            where = places.origin(fragment.key, base_name(fragment.provides[0].name) if fragment.provides else "")
            found = Diagnostic.at(where, message, _UNUSED, severity, hint=hint)
            yield found_in(found, str(fragment.key), dict(fragment.key.parameters))


def _why_unused(fragment: Fragment, requirer: Fragment | None) -> str:
    if requirer is None:
        listed = ", ".join(demangle(symbol.name) for symbol in fragment.provides)
        return f"no fragment requires {listed or 'anything of it'}"
    theirs = dict(requirer.key.parameters)
    apart = [name for name, value in fragment.key.parameters if theirs.get(name, value) != value]
    has = ", ".join(f"{name}={theirs[name]}" for name in apart)
    return f"{requirer.key}, which requires its symbols, {f'has {has}' if has else 'is not planned with it'}"
