"""The content of a report, gathered from a database."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from jitlto.errors import DatabaseError, JitltoError
from jitlto.model.family_record import FamilyRecord, GroupRecord
from jitlto.model.fragment import Fragment, FragmentKey, ImageKind, Role
from jitlto.model.mangling import demangle
from jitlto.report import call_graph, grid
from jitlto.report.calls import Groups, Interface, calls, interfaces
from jitlto.report.content import FamilyView, FragmentView, GroupView, ImageSet, Report, Size
from jitlto.report.coverage import Cell, measure_coverage
from jitlto.storage.check_result import CheckResult
from jitlto.storage.database import FragmentDatabase


def describe(
    database: FragmentDatabase,
    *,
    family: str | None = None,
    seconds: Mapping[str, float] | None = None,
    check: CheckResult | None = None,
) -> Report:
    """Gather the content of a report. No image is read.

    Args:
        family: Report only this family.
        seconds: Compile times by the fragment's key.
        check: The result of a check of this database.

    Raises:
        JitltoError: If the seconds or the check are of another database.
        DatabaseError: If a name in the database is not valid Unicode.
    """
    where = str(database.path)
    if check is not None and check.digest != database.digest:
        what = f"the check is of another database, with digest {check.digest}"
        hint = f"check this one again: jitlto check {where} --json"
        raise JitltoError(what, code="jitlto-other-database", where=where, hint=hint)
    fragments = database.fragments(family)
    timed = None if seconds is None else sum(str(fragment.key) in seconds for fragment in fragments)
    if fragments and timed == 0:
        hint = "give those of this database's build"
        raise JitltoError("the timings are of other fragments", code="jitlto-other-database", where=where, hint=hint)
    if check is not None and family is not None:
        check = check.only(family)
    try:
        families = _families(database, family, seconds or {}, Counter(_faulty(check) if check else ()))
    except UnicodeEncodeError as error:  # JSON can say half a surrogate pair, which no key or symbol can be made of
        what, hint = f"damaged: a name holds {error.object!r}", "fetch, install or build it again"
        raise DatabaseError(what, code="database-damaged", where=where, hint=hint) from error
    images = [image for fragment in fragments for image in fragment.images]
    return Report(
        database.path.name,
        database.digest,
        str(database.part) if database.part else None,
        sum(family in (None, key.family) for key in database.gaps),
        families,
        len(fragments),
        Size.of(images),
        sum({image.sha256: image.size for image in images}.values()),
        timed,
        _sum(view.seconds for view in families),
        check,
    )


def _families(
    database: FragmentDatabase, only: str | None, seconds: Mapping[str, float], faults: Mapping[str, int]
) -> tuple[FamilyView, ...]:
    expected: dict[tuple[str, str], list[FragmentKey]] = defaultdict(list)
    for key in database.part.keys if database.part else database.gaps:
        if only in (None, key.family):
            expected[key.family, key.group].append(key)
    names = {only} if only else {*database.families, *(f.key.family for f in database.fragments())}
    families, number = [], 0
    for name in sorted(names.union(name for name, _ in expected)):
        own = database.fragments(name)
        families.append(_family(name, database.families.get(name), own, number, seconds, expected, faults))
        number += len(own)
    return tuple(families)


def _faulty(check: CheckResult) -> Iterable[str]:
    """The subjects of all failures of a check."""
    causes = [cause for family in check.families for cause in family.failures]
    causes += [cause for links in (check.link.families if check.link else ()) for cause in links.failures]
    for cause in causes:
        for place in cause.at:
            yield place.subject


def _family(
    name: str,
    record: FamilyRecord | None,
    fragments: Sequence[Fragment],
    first: int,
    seconds: Mapping[str, float],
    expected: Mapping[tuple[str, str], Sequence[FragmentKey]],
    faults: Mapping[str, int],
) -> FamilyView:
    described = Groups(fragments)
    found = interfaces(record, fragments, described)
    by_name = {interface.name: interface for interface in found}
    declared = {group.name: group for group in record.groups} if record else {}
    members: dict[str, list[tuple[int, Fragment]]] = defaultdict(list)
    for number, fragment in enumerate(fragments, first):
        members[fragment.key.group].append((number, fragment))
    groups = [
        _group(group, declared.get(group), members[group], seconds, expected.get((name, group), ()), faults, by_name)
        for group in sorted({*declared, *members, *(group for family, group in expected if family == name)})
    ]
    groups.sort(key=lambda group: (group.role is not Role.ENTRYPOINT, group.name))
    called = calls(found, fragments, described)
    edges = [(call.caller, call.callee) for call in called]
    link = record.link.as_dict() if record else {}
    return FamilyView(
        name,
        tuple(groups),
        len(fragments),
        Size.of(image for fragment in fragments for image in fragment.images),
        _sum(group.seconds for group in groups),
        _image_sets(fragments),
        record.options if record else (),
        tuple(f"{option} = {_toml(value)}" for option, value in sorted(link.items())),
        found,
        called,
        call_graph.draw([group.name for group in groups], edges) if edges else None,
    )


def _group(
    name: str,
    record: GroupRecord | None,
    members: Sequence[tuple[int, Fragment]],
    seconds: Mapping[str, float],
    expected: Sequence[FragmentKey],
    faults: Mapping[str, int],
    by_name: Mapping[str, Interface],
) -> GroupView:
    keys = [fragment.key for _, fragment in members]
    # The author's order; a file that jitlto has not written may hold keys that do not fit their group.
    names = list(record.key if record else ())
    names += sorted({name for key in (*keys, *expected) for name, _ in key.parameters} - set(names))
    present, apart = _cells(names, keys), _cells(names, expected)
    coverage = measure_coverage(names, present, apart)
    views = []
    for (number, fragment), cell in zip(members, present, strict=True):
        views.append(
            FragmentView(
                number,
                fragment,
                cell,
                demangle(fragment.entry),
                Size.of(fragment.images),
                tuple(by_name[symbol.name] for symbol in fragment.provides if symbol.name in by_name),
                tuple(by_name[symbol.name] for symbol in fragment.requires),
                seconds.get(str(fragment.key)),
                faults.get(str(fragment.key), 0),
            )
        )
    role = record.role if record else members[0][1].role if members else Role.DEVICE
    return GroupView(
        name,
        role,
        record.interface if record else None,
        record.supplied if record else False,
        tuple(views),
        tuple(tuple(zip(names, cell, strict=True)) for cell in sorted(set(apart) - set(present))),
        Size.of(image for _, fragment in members for image in fragment.images),
        _sum(view.seconds for view in views),
        coverage,
        grid.draw(coverage, present, apart),
    )


def _cells(names: Sequence[str], keys: Iterable[FragmentKey]) -> list[Cell]:
    return [tuple(values.get(name, "") for name in names) for values in (dict(key.parameters) for key in keys)]


def _image_sets(fragments: Iterable[Fragment]) -> tuple[ImageSet, ...]:
    made: dict[tuple[ImageKind, tuple[int, str], str, str], list[int]] = defaultdict(list)
    for fragment in fragments:
        for image in fragment.images:
            toolchain, isa = f"{image.toolchain} {image.version}", str(image.ptx_isa or "")
            made[image.kind, image.architecture, toolchain, isa].append(image.size)
    return tuple(
        ImageSet(kind, re.sub(r"\W", "", f"{number}{suffix}"), toolchain, isa, len(sizes), sum(sizes))
        for (kind, (number, suffix), toolchain, isa), sizes in sorted(made.items())
    )


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sum(seconds: Iterable[float | None]) -> float | None:
    known = [value for value in seconds if value is not None]
    return sum(known) if known else None
