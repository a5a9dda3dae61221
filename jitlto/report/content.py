"""The content of a report: plain values gathered from a database, without reading any image."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from jitlto.base.errors import DatabaseError
from jitlto.base.mangling import base_name
from jitlto.database import MERGE_HINT, FragmentDatabase
from jitlto.record.family_record import GroupRecord
from jitlto.record.fragment import Fragment, Image, Role
from jitlto.report import drawing, grid

_MOST_DRAWN = 100  # groups


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as shown in the report.

    Args:
        record: As the family declares it.
        values: Its parameters, and the values of each.
        by_cell: Its fragments by the values of its parameters, numbers in numerical order.
        grid: Its product as a table; None if it has one cell or too many.
    """

    record: GroupRecord
    values: Mapping[str, Sequence[str]]
    by_cell: Mapping[grid.Cell, Fragment]
    grid: grid.Grid | None

    @property
    def product(self) -> int:
        """The number of combinations of all values that occur."""
        return prod(map(len, self.values.values())) if self.by_cell else 0


@dataclass(frozen=True, slots=True)
class FamilyView:
    """A family as shown in the report.

    Args:
        groups: Sorted by name, entrypoints first.
        images: Kinds, architectures and compilers, and the bytes of each.
        calls: Caller and callee, groups both, and the names of what is called, without types; the callee is empty where
            neither the database nor a caller provides it.
        drawing: The calls between groups; None if there are none, or too many groups.
    """

    name: str
    groups: Sequence[GroupView]
    images: Mapping[str, int]
    calls: Mapping[tuple[str, str], Sequence[str]]
    drawing: drawing.Drawing | None


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a report; ``stored`` bytes of images are there."""

    title: str
    digest: str
    families: Sequence[FamilyView]
    stored: int

    @property
    def fragments(self) -> list[Fragment]:
        """All fragments, by family and group."""
        return [each for family in self.families for group in family.groups for each in group.by_cell.values()]


def describe(database: FragmentDatabase, *, family: str | None = None) -> Report:
    """Gather the content of a report, of all families or of one."""
    if database.part is not None:
        what = f"database is {database.part} of a build, and a report shows what a whole one has and lacks"
        raise DatabaseError(what, code="database-part", where=str(database.path), hint=MERGE_HINT)
    fragments = database.fragments(family)
    found = {*database.families, *(each.key.family for each in fragments)}
    return Report(
        database.path.name,
        database.digest,
        [_family(name, database) for name in sorted(found) if family in (None, name)],
        sum({image.sha256: image.size for fragment in fragments for image in fragment.images}.values()),
    )


def size(fragments: Iterable[Fragment]) -> int:
    """Return the bytes of all images of some fragments."""
    return sum(image.size for fragment in fragments for image in fragment.images)


def _family(name: str, database: FragmentDatabase) -> FamilyView:
    record, fragments = database.families.get(name), database.fragments(name)
    declared = {group.name: group for group in record.groups} if record else {}
    members: dict[str, list[Fragment]] = defaultdict(list)
    for fragment in fragments:
        members[fragment.key.group].append(fragment)
    for group in {*members} - {*declared}:
        declared[group] = GroupRecord(group, members[group][0].role, (), None, False)
    groups = [_group(group, members[group.name]) for group in declared.values()]
    groups.sort(key=lambda group: (group.record.role is not Role.ENTRYPOINT, group.record.name))
    calls = _calls(fragments, database.planned(name)[1] if record else fragments, declared.values())
    names = [group.record.name for group in groups]
    edges = [edge for edge in calls if {*edge} <= {*names}]
    images: Counter[str] = Counter()
    for image in (image for fragment in fragments for image in fragment.images):
        images[describe_image(image)] += image.size
    drawn = drawing.draw(names, edges) if edges and len(names) <= _MOST_DRAWN else None
    return FamilyView(name, groups, dict(sorted(images.items())), calls, drawn)


def _group(record: GroupRecord, members: Sequence[Fragment]) -> GroupView:
    # The author's order; in a file that jitlto has not written, keys may not fit their group.
    found = [(dict(fragment.key.parameters), fragment) for fragment in members]
    names = list(dict.fromkeys([*record.key, *sorted({name for values, _ in found for name in values})]))
    by_cell = {tuple(values.get(name, "") for name in names): fragment for values, fragment in found}
    values = dict(zip(names, grid.find_values(names, by_cell.keys()), strict=True))
    ordered = sorted(by_cell.items(), key=lambda item: [grid.order(value) for value in item[0]])
    return GroupView(record, values, dict(ordered), grid.draw(names, by_cell))


def _calls(
    fragments: Iterable[Fragment], planned: Iterable[Fragment], groups: Collection[GroupRecord]
) -> dict[tuple[str, str], list[str]]:
    """Return what fragments call of all that they are planned with; what none provides is of callers' groups."""
    providers: dict[str, set[str]] = defaultdict(set)
    for fragment in planned:
        for symbol in fragment.provides if fragment.role is Role.DEVICE else ():
            providers[symbol.name].add(fragment.key.group)
    otherwise = [group.name for group in groups if group.supplied] or [""]
    called: dict[tuple[str, str], set[str]] = defaultdict(set)
    for fragment in fragments:
        for symbol in fragment.requires:
            for callee in providers.get(symbol.name, otherwise):
                called[fragment.key.group, callee].add(base_name(symbol.name))
    return {edge: sorted(names) for edge, names in sorted(called.items())}


def describe_image(image: Image) -> str:
    """Return the kind, architecture and compiler of an image."""
    isa = f" (ISA {image.ptx_isa})" if image.ptx_isa else ""
    return f"{image.kind} {image.architecture.compute}, {image.toolchain} {image.version}{isa}"
