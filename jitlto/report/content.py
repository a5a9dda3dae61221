"""The content of a report: plain values gathered from a database."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from jitlto.base.errors import DatabaseError, JitltoError
from jitlto.base.mangling import demangle
from jitlto.database import FragmentDatabase
from jitlto.record.check_result import CheckResult, FamilyCheck, FamilyLinks
from jitlto.record.family_record import GroupRecord
from jitlto.record.fragment import Fragment, FragmentKey, Image, ImageKind, Role
from jitlto.report import call_graph, grid
from jitlto.report.calls import Call, Groups, Interface, calls, interfaces
from jitlto.report.coverage import Cell, Coverage, measure_coverage, natural


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of images, by kind."""

    ltoir: int
    ptx: int

    @property
    def total(self) -> int:
        return self.ltoir + self.ptx

    @classmethod
    def of_images(cls, images: Iterable[Image]) -> Size:
        images = list(images)
        return cls(*(sum(i.size for i in images if i.kind is kind) for kind in (ImageKind.LTOIR, ImageKind.PTX)))


@dataclass(frozen=True, slots=True)
class FragmentView:
    """A fragment as shown in the report.

    Args:
        number: Its position in the database, from 0.
        cell: Its values in the dimensions of its group.
        entry: The demangled name of the kernel; empty for a device fragment.
        faults: The number of failures of a check that name it.
    """

    number: int
    fragment: Fragment
    cell: Cell
    entry: str
    size: Size
    provides: tuple[Interface, ...]
    requires: tuple[Interface, ...]
    seconds: float | None
    faults: int

    @property
    def key(self) -> FragmentKey:
        return self.fragment.key


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as shown in the report.

    Args:
        supplied: Whether callers supply its definition, so that it has no fragments.
        apart: Parameters of its fragments that are not in this database.
        grid: Its product as a table; None if it has fewer than two dimensions or too many cells.
        seconds: The sum of the known compile times; None if no time is known.
    """

    name: str
    role: Role
    interface: str | None
    supplied: bool
    fragments: tuple[FragmentView, ...]
    apart: tuple[tuple[tuple[str, str], ...], ...]
    size: Size
    seconds: float | None
    coverage: Coverage
    grid: grid.Grid | None

    @property
    def largest(self) -> int:
        """Bytes of its largest fragment."""
        return max((view.size.total for view in self.fragments), default=0)

    @property
    def by_cell(self) -> dict[Cell, FragmentView]:
        return {view.cell: view for view in self.fragments}

    @property
    def by_value(self) -> list[FragmentView]:
        """Its fragments sorted by value, numbers in numerical order."""
        return sorted(self.fragments, key=lambda view: ([natural(value) for value in view.cell], view.number))


@dataclass(frozen=True, slots=True)
class ImageSet:
    """The number and bytes of images of one kind, compiler version and architecture; ``isa`` is empty for LTO-IR."""

    kind: ImageKind
    architecture: str
    toolchain: str
    isa: str
    images: int
    size: int


@dataclass(frozen=True, slots=True)
class FamilyView:
    """A family as shown in the report.

    Args:
        groups: Sorted by name, entrypoints first.
        options: Compiler options for callers' sources.
        link: Link options that differ from the defaults.
        drawing: The calls between groups; None if there are no calls.
    """

    name: str
    groups: tuple[GroupView, ...]
    fragments: int
    size: Size
    seconds: float | None
    image_sets: tuple[ImageSet, ...]
    options: tuple[str, ...]
    link: tuple[str, ...]
    interfaces: tuple[Interface, ...]
    calls: tuple[Call, ...]
    drawing: call_graph.Drawing | None


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a report.

    Args:
        title: The file's name.
        part: The part of a build, if the database is not complete.
        gaps: The number of fragments that a merge has left out.
        stored: Bytes of images as stored; equal images are stored once.
        timed: The number of fragments whose compile time is known; None if no timings were given.
    """

    title: str
    digest: str
    part: str | None
    gaps: int
    families: tuple[FamilyView, ...]
    fragments: int
    size: Size
    stored: int
    timed: int | None
    seconds: float | None
    check: CheckResult | None

    @property
    def groups(self) -> int:
        return sum(len(family.groups) for family in self.families)

    @property
    def example(self) -> str:
        """An example for the filter: the group and one value of the first fragment."""
        views = [view for family in self.families for group in family.groups for view in group.fragments[:1]]
        return f"{views[0].key.group} {'='.join(views[0].key.parameters[0])}" if views and views[0].cell else ""


def describe(
    database: FragmentDatabase,
    *,
    family: str | None = None,
    seconds: Mapping[str, float] | None = None,
    check: CheckResult | None = None,
) -> Report:
    """Gather the content of a report, without reading any image.

    Args:
        family: Report only this family.
        seconds: Fragment key → compile time.
        check: The result of a check of this database.

    Raises:
        JitltoError: If the compile times or the check belong to a different database.
        DatabaseError: If a name in the database is not valid Unicode.
    """
    where = str(database.path)
    if check is not None and check.digest != database.digest:
        what = f"the check is of a different database, with digest {check.digest}"
        hint = f"check this database: jitlto check {where} --json"
        raise JitltoError(what, code="jitlto-other-database", where=where, hint=hint)
    fragments = database.fragments(family)
    timed = None if seconds is None else sum(str(fragment.key) in seconds for fragment in fragments)
    if fragments and timed == 0:
        what, hint = "the timings are of other fragments", "measure this build: jitlto build --timings FILE.json"
        raise JitltoError(what, code="jitlto-other-database", where=where, hint=hint)
    if check is not None and family is not None:
        check = check.only(family)
    try:
        families = _families(database, family, seconds or {}, Counter(_faulty(check) if check else ()))
    except UnicodeEncodeError as error:  # JSON can express half a surrogate pair
        what, hint = f"damaged: invalid name {error.object!r}", "fetch, install or build it again"
        raise DatabaseError(what, code="database-damaged", where=where, hint=hint) from error
    images = [image for fragment in fragments for image in fragment.images]
    return Report(
        database.path.name,
        database.digest,
        str(database.part) if database.part else None,
        sum(family in (None, key.family) for key in database.gaps),
        families,
        len(fragments),
        Size.of_images(images),
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
    numbers = count()
    names.update(name for name, _ in expected)
    return tuple(_family(name, database, numbers, seconds, expected, faults) for name in sorted(names))


def _faulty(check: CheckResult) -> list[str]:
    """Return the subjects of all failures of a check."""
    checks: list[FamilyCheck | FamilyLinks] = [*check.families, *(check.link.families if check.link else ())]
    return [place.subject for each in checks for cause in each.failures for place in cause.at]


def _family(
    name: str,
    database: FragmentDatabase,
    numbers: Iterator[int],
    seconds: Mapping[str, float],
    expected: Mapping[tuple[str, str], Sequence[FragmentKey]],
    faults: Mapping[str, int],
) -> FamilyView:
    record, fragments = database.families.get(name), database.fragments(name)
    planned = database.planned(name)[1] if record else fragments
    described = Groups(planned)
    # Without what only the fragments of used families have to do with each other.
    own = {symbol.name for fragment in fragments for symbol in (*fragment.provides, *fragment.requires)}
    found = tuple(each for each in interfaces(record, planned, described) if each.name in own)
    by_name = {interface.name: interface for interface in found}
    declared = {group.name: group for group in record.groups} if record else {}
    members: dict[str, list[tuple[int, Fragment]]] = defaultdict(list)
    for fragment, number in zip(fragments, numbers, strict=False):  # fragments first: zip would drop a number
        members[fragment.key.group].append((number, fragment))
    groups = [
        _group(group, declared.get(group), members[group], seconds, expected.get((name, group), ()), faults, by_name)
        for group in sorted({*declared, *members, *(group for family, group in expected if family == name)})
    ]
    groups.sort(key=lambda group: (group.role is not Role.ENTRYPOINT, group.name))
    called = calls(found, planned, described)
    drawn = [group.name for group in groups]
    edges = [(call.caller, call.callee) for call in called if call.caller in drawn and call.callee in drawn]
    link = record.link.as_dict() if record else {}
    return FamilyView(
        name,
        tuple(groups),
        len(fragments),
        Size.of_images(image for fragment in fragments for image in fragment.images),
        _sum(group.seconds for group in groups),
        _image_sets(fragments),
        record.options if record else (),
        tuple(
            f"{option} = {str(value).lower() if isinstance(value, bool) else value}"
            for option, value in sorted(link.items())
        ),
        found,
        called,
        call_graph.draw(drawn, edges) if edges else None,
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
    record = record or GroupRecord(name, members[0][1].role if members else Role.DEVICE, (), None, False)
    # The author's order; in a file that jitlto has not written, keys may not fit their group.
    names = [*record.key, *sorted({name for key in (*keys, *expected) for name, _ in key.parameters} - {*record.key})]
    present, apart = _cells(names, keys), _cells(names, expected)
    coverage = measure_coverage(names, present, apart, record.exclude)
    views = tuple(
        FragmentView(
            number,
            fragment,
            cell,
            demangle(fragment.entry),
            Size.of_images(fragment.images),
            tuple(by_name[symbol.name] for symbol in fragment.provides if symbol.name in by_name),
            tuple(by_name[symbol.name] for symbol in fragment.requires),
            seconds.get(str(fragment.key)),
            faults.get(str(fragment.key), 0),
        )
        for (number, fragment), cell in zip(members, present, strict=True)
    )
    return GroupView(
        name,
        record.role,
        record.interface,
        record.supplied,
        views,
        tuple(tuple(zip(names, cell, strict=True)) for cell in sorted(set(apart) - set(present))),
        Size.of_images(image for _, fragment in members for image in fragment.images),
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


def _sum(seconds: Iterable[float | None]) -> float | None:
    known = [value for value in seconds if value is not None]
    return sum(known) if known else None
