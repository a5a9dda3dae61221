"""The content of a report: plain values gathered from a database, without reading any image."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod

from jitlto.base.mangling import base_name
from jitlto.database import FragmentDatabase
from jitlto.record.exclusions import Exclusion
from jitlto.record.family_record import FamilyRecord, GroupRecord
from jitlto.record.fragment import Fragment, FragmentKey, Image, Role
from jitlto.report import drawing, grid

_MOST_DRAWN = 100  # groups


@dataclass(frozen=True, slots=True)
class FragmentView:
    """A fragment, with its position in the database, from 0."""

    number: int
    fragment: Fragment

    @property
    def size(self) -> int:
        """Bytes of its images."""
        return sum(image.size for image in self.fragment.images)


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as shown in the report.

    Args:
        supplied: Whether callers supply its definition, so that it has no fragments.
        values: Its parameters, and the values of each.
        apart: The number of its fragments that are in another part of the build, or that a merge has left out.
        by_cell: Its fragments by the values of its parameters.
        grid: Its product as a table; None if it has fewer than two dimensions or too many cells.
    """

    name: str
    role: Role
    interface: str | None
    supplied: bool
    values: Mapping[str, Sequence[str]]
    exclude: tuple[Exclusion, ...]
    apart: int
    by_cell: Mapping[grid.Cell, FragmentView]
    grid: grid.Grid | None

    @property
    def fragments(self) -> list[FragmentView]:
        """Its fragments, numbers in numerical order."""
        cells = sorted(self.by_cell, key=lambda cell: [grid.natural(value) for value in cell])
        return [self.by_cell[cell] for cell in cells]

    @property
    def product(self) -> int:
        """The number of combinations of all values that occur."""
        return prod(map(len, self.values.values())) if self.by_cell or self.apart else 0

    @property
    def size(self) -> int:
        """Bytes of images."""
        return sum(view.size for view in self.by_cell.values())


@dataclass(frozen=True, slots=True)
class FamilyView:
    """A family as shown in the report.

    Args:
        groups: Sorted by name, entrypoints first.
        images: Kinds, architectures and compilers, and the bytes of each.
        options: Compiler options for callers' sources.
        link: Link options that differ from the defaults.
        calls: Caller and callee, groups both, and the names of what is called, without types; the callee is empty where
            neither the database nor a caller provides it.
        drawing: The calls between groups; None if there are none, or too many groups.
    """

    name: str
    groups: tuple[GroupView, ...]
    images: Mapping[str, int]
    options: tuple[str, ...]
    link: tuple[str, ...]
    calls: Mapping[tuple[str, str], Sequence[str]]
    drawing: drawing.Drawing | None

    @property
    def fragments(self) -> list[FragmentView]:
        """All fragments, by group."""
        return [view for group in self.groups for view in group.fragments]


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a report.

    Args:
        title: The file's name.
        part: The part of a build, if the database is not complete.
        gaps: The number of fragments that a merge has left out.
        stored: Bytes of images as stored; equal images are stored once.
    """

    title: str
    digest: str
    part: str | None
    gaps: int
    families: tuple[FamilyView, ...]
    stored: int

    @property
    def fragments(self) -> list[FragmentView]:
        """All fragments."""
        return [view for family in self.families for view in family.fragments]


def describe(database: FragmentDatabase, *, family: str | None = None) -> Report:
    """Gather the content of a report, of all families or of one."""
    apart = [*(database.part.keys if database.part else ()), *database.gaps]
    apart = [key for key in apart if family in (None, key.family)]
    fragments = database.fragments(family)
    known = {family} if family else {*database.families, *(f.key.family for f in fragments)}
    numbers = count()
    return Report(
        database.path.name,
        database.digest,
        str(database.part) if database.part else None,
        sum(family in (None, key.family) for key in database.gaps),
        tuple(_family(name, database, numbers, apart) for name in sorted({*known, *(key.family for key in apart)})),
        sum({image.sha256: image.size for fragment in fragments for image in fragment.images}.values()),
    )


def _family(name: str, database: FragmentDatabase, numbers: Iterator[int], apart: Iterable[FragmentKey]) -> FamilyView:
    record, fragments = database.families.get(name), database.fragments(name)
    declared = {group.name: group for group in record.groups} if record else {}
    members: dict[str, list[FragmentView]] = defaultdict(list)
    elsewhere: dict[str, list[FragmentKey]] = defaultdict(list)
    for fragment, number in zip(fragments, numbers, strict=False):  # fragments first: zip would drop a number
        members[fragment.key.group].append(FragmentView(number, fragment))
    for key in apart:
        if key.family == name:
            elsewhere[key.group].append(key)
    names = {*declared, *members, *elsewhere}
    groups = [_group(group, declared.get(group), members[group], elsewhere[group]) for group in names]
    groups.sort(key=lambda group: (group.role is not Role.ENTRYPOINT, group.name))
    calls = _calls(record, fragments, database.planned(name)[1] if record else fragments)
    drawn = [group.name for group in groups]
    edges = [edge for edge in calls if {*edge} <= {*drawn}]
    images: dict[str, int] = defaultdict(int)
    for image in (image for fragment in fragments for image in fragment.images):
        images[describe_image(image)] += image.size
    link = record.link.as_dict() if record else {}
    return FamilyView(
        name,
        tuple(groups),
        dict(sorted(images.items())),
        record.options if record else (),
        tuple(f"{option} = {str(v).lower() if isinstance(v, bool) else v}" for option, v in sorted(link.items())),
        calls,
        drawing.draw(drawn, edges) if edges and len(drawn) <= _MOST_DRAWN else None,
    )


def _group(
    name: str, record: GroupRecord | None, members: Sequence[FragmentView], elsewhere: Sequence[FragmentKey]
) -> GroupView:
    keys = [view.fragment.key for view in members]
    record = record or GroupRecord(name, members[0].fragment.role if members else Role.DEVICE, (), None, False)
    # The author's order; in a file that jitlto has not written, keys may not fit their group.
    named = {name for key in (*keys, *elsewhere) for name, _ in key.parameters}
    names = [*record.key, *sorted(named - {*record.key})]
    by_cell = dict(zip(_cells(names, keys), members, strict=True))
    apart = {*_cells(names, elsewhere)} - by_cell.keys()
    return GroupView(
        name,
        record.role,
        record.interface,
        record.supplied,
        dict(zip(names, grid.find_values(names, [*by_cell, *apart]), strict=True)),
        record.exclude,
        len(apart),
        by_cell,
        grid.draw(names, by_cell, apart, record.exclude),
    )


def _cells(names: Sequence[str], keys: Iterable[FragmentKey]) -> list[grid.Cell]:
    return [tuple(values.get(name, "") for name in names) for values in (dict(key.parameters) for key in keys)]


def _calls(
    record: FamilyRecord | None, fragments: Iterable[Fragment], planned: Iterable[Fragment]
) -> dict[tuple[str, str], list[str]]:
    """Return what fragments of a family call of all that they are planned with."""
    providers: dict[str, set[str]] = defaultdict(set)
    for fragment in planned:
        for symbol in fragment.provides if fragment.role is Role.DEVICE else ():
            providers[symbol.name].add(fragment.key.group)
    headers = dict(record.headers) if record else {}
    supplied = [group for group in record.groups if group.supplied] if record else []
    declared = {group.name: {*re.findall(r"\w+", headers.get(group.interface or "", ""))} for group in supplied}
    called: dict[tuple[str, str], set[str]] = defaultdict(set)
    for fragment in fragments:
        for symbol in fragment.requires:
            name = base_name(symbol.name)
            by_callers = [group for group, words in declared.items() if name in words]
            for callee in providers.get(symbol.name) or by_callers or [""]:
                called[fragment.key.group, callee].add(name)
    return {edge: sorted(names) for edge, names in sorted(called.items())}


def describe_image(image: Image) -> str:
    """Return the kind, architecture and compiler of an image."""
    isa = f" (ISA {image.ptx_isa})" if image.ptx_isa else ""
    return f"{image.kind} {image.architecture.compute}, {image.toolchain} {image.version}{isa}"
