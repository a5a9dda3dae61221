"""The content of a report: plain values gathered from a database, without reading any image."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod

from jitlto.base.mangling import base_name, demangle
from jitlto.database import FragmentDatabase
from jitlto.record.family_record import FamilyRecord, GroupRecord
from jitlto.record.fragment import Fragment, FragmentKey, Image, ImageKind, Role, SymbolKind
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
        apart: Combinations of its fragments that are not in this database.
        by_cell: Its fragments by the values of its parameters.
        grid: Its product as a table; None if it has fewer than two dimensions or too many cells.
    """

    name: str
    role: Role
    interface: str | None
    supplied: bool
    values: Mapping[str, Sequence[str]]
    exclude: tuple[tuple[tuple[str, str], ...], ...]
    apart: tuple[grid.Cell, ...]
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
class Interface:
    """A symbol that fragments provide or require.

    Args:
        text: The demangled name.
        layout: Sizes in bytes, see :class:`jitlto.record.fragment.Symbol`.
        providers, requirers: The number of fragments by group.
        supplied: If no fragment provides it, the groups supplied by callers whose interface declares it.
    """

    name: str
    text: str
    layout: str
    providers: Mapping[str, int]
    requirers: Mapping[str, int]
    supplied: tuple[str, ...]

    @property
    def missing(self) -> bool:
        """True if it is required, and neither the database nor a caller provides it."""
        return bool(self.requirers) and not self.providers and not self.supplied


@dataclass(frozen=True, slots=True)
class ImageSet:
    """The number and bytes of images of one kind, architecture and compiler."""

    kind: ImageKind
    architecture: str
    toolchain: str
    images: int
    size: int


@dataclass(frozen=True, slots=True)
class FamilyView:
    """A family as shown in the report.

    Args:
        groups: Sorted by name, entrypoints first.
        options: Compiler options for callers' sources.
        link: Link options that differ from the defaults.
        calls: Caller and callee, groups both, and the functions and variables, without types.
        drawing: The calls between groups; None if there are none, or too many groups.
    """

    name: str
    groups: tuple[GroupView, ...]
    image_sets: tuple[ImageSet, ...]
    options: tuple[str, ...]
    link: tuple[str, ...]
    interfaces: tuple[Interface, ...]
    calls: Mapping[tuple[str, str], Sequence[str]]
    drawing: drawing.Drawing | None

    @property
    def fragments(self) -> list[FragmentView]:
        """All fragments, by group."""
        return [view for group in self.groups for view in group.fragments]

    @property
    def size(self) -> int:
        """Bytes of images."""
        return sum(group.size for group in self.groups)


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
    expected: dict[tuple[str, str], list[FragmentKey]] = defaultdict(list)
    for key in database.part.keys if database.part else database.gaps:
        if family in (None, key.family):
            expected[key.family, key.group].append(key)
    fragments = database.fragments(family)
    known = {family} if family else {*database.families, *(f.key.family for f in fragments)}
    numbers = count()
    names = sorted(known.union(name for name, _ in expected))
    return Report(
        database.path.name,
        database.digest,
        str(database.part) if database.part else None,
        sum(family in (None, key.family) for key in database.gaps),
        tuple(_family(name, database, numbers, expected) for name in names),
        sum({image.sha256: image.size for fragment in fragments for image in fragment.images}.values()),
    )


def _family(
    name: str,
    database: FragmentDatabase,
    numbers: Iterator[int],
    expected: Mapping[tuple[str, str], Sequence[FragmentKey]],
) -> FamilyView:
    record, fragments = database.families.get(name), database.fragments(name)
    planned = database.planned(name)[1] if record else fragments
    # Without what only the fragments of used families have to do with each other.
    own = {symbol.name for fragment in fragments for symbol in (*fragment.provides, *fragment.requires)}
    interfaces = tuple(each for each in _interfaces(record, planned) if each.name in own)
    declared = {group.name: group for group in record.groups} if record else {}
    members: dict[str, list[FragmentView]] = defaultdict(list)
    for fragment, number in zip(fragments, numbers, strict=False):  # fragments first: zip would drop a number
        members[fragment.key.group].append(FragmentView(number, fragment))
    groups = [
        _group(group, declared.get(group), members[group], expected.get((name, group), ()))
        for group in {*declared, *members, *(group for family, group in expected if family == name)}
    ]
    groups.sort(key=lambda group: (group.role is not Role.ENTRYPOINT, group.name))
    called: dict[tuple[str, str], set[str]] = defaultdict(set)
    for each in interfaces:
        for caller in each.requirers:
            for callee in (*each.providers, *each.supplied):
                called[caller, callee].add(base_name(each.name))
    drawn = [group.name for group in groups]
    edges = [edge for edge in sorted(called) if {*edge} <= {*drawn}]
    link = record.link.as_dict() if record else {}
    return FamilyView(
        name,
        tuple(groups),
        _image_sets(image for fragment in fragments for image in fragment.images),
        record.options if record else (),
        tuple(f"{option} = {str(v).lower() if isinstance(v, bool) else v}" for option, v in sorted(link.items())),
        interfaces,
        {edge: sorted(words) for edge, words in sorted(called.items())},
        drawing.draw(drawn, edges) if edges and len(drawn) <= _MOST_DRAWN else None,
    )


def _group(
    name: str, record: GroupRecord | None, members: Sequence[FragmentView], expected: Sequence[FragmentKey]
) -> GroupView:
    keys = [view.fragment.key for view in members]
    record = record or GroupRecord(name, members[0].fragment.role if members else Role.DEVICE, (), None, False)
    # The author's order; in a file that jitlto has not written, keys may not fit their group.
    names = [*record.key, *sorted({name for key in (*keys, *expected) for name, _ in key.parameters} - {*record.key})]
    by_cell = dict(zip(_cells(names, keys), members, strict=True))
    apart = sorted({*_cells(names, expected)} - by_cell.keys())
    return GroupView(
        name,
        record.role,
        record.interface,
        record.supplied,
        dict(zip(names, grid.find_values(names, [*by_cell, *apart]), strict=True)),
        record.exclude,
        tuple(apart),
        by_cell,
        grid.draw(names, by_cell, apart, record.exclude),
    )


def _cells(names: Sequence[str], keys: Iterable[FragmentKey]) -> list[grid.Cell]:
    return [tuple(values.get(name, "") for name in names) for values in (dict(key.parameters) for key in keys)]


def _interfaces(record: FamilyRecord | None, fragments: Sequence[Fragment]) -> list[Interface]:
    """Return all symbols that fragments of a family require or provide, sorted by their text.

    Variables that no fragment requires are left out, because compilers list those in function bodies too.
    """
    found: dict[str, tuple[SymbolKind, str]] = {}
    providers: dict[str, Counter[str]] = defaultdict(Counter)
    requirers: dict[str, Counter[str]] = defaultdict(Counter)
    for fragment in fragments:
        for symbol in fragment.requires:
            requirers[symbol.name][fragment.key.group] += 1
            found.setdefault(symbol.name, (symbol.kind, symbol.layout))
        for symbol in fragment.provides if fragment.role is Role.DEVICE else ():
            providers[symbol.name][fragment.key.group] += 1
            found[symbol.name] = (symbol.kind, symbol.layout)
    headers = dict(record.headers) if record else {}
    supplied = [group for group in record.groups if group.supplied] if record else []
    declared = {group.name: {*re.findall(r"\w+", headers.get(group.interface or "", ""))} for group in supplied}
    interfaces = [
        Interface(
            name,
            demangle(name),
            layout,
            providers[name],
            requirers[name],
            () if providers[name] else tuple(group for group, words in declared.items() if base_name(name) in words),
        )
        for name, (kind, layout) in found.items()
        if requirers[name] or kind is not SymbolKind.VARIABLE
    ]
    return sorted(interfaces, key=lambda interface: (interface.text, interface.name))


def _image_sets(images: Iterable[Image]) -> tuple[ImageSet, ...]:
    made: dict[tuple[ImageKind, str, str], list[int]] = defaultdict(list)
    for image in images:
        made[image.kind, image.architecture.compute, describe_toolchain(image)].append(image.size)
    return tuple(ImageSet(*key, len(sizes), sum(sizes)) for key, sizes in sorted(made.items()))


def describe_toolchain(image: Image) -> str:
    """Return the compiler of an image, and its ISA: ``nvrtc 13.0, PTX ISA 9.0``."""
    return f"{image.toolchain} {image.version}" + (f", PTX ISA {image.ptx_isa}" if image.ptx_isa else "")
