"""The content of a report as plain values, which the page shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from jitlto.model.fragment import Fragment, FragmentKey, Image, ImageKind, Role
from jitlto.report import call_graph, grid
from jitlto.report.calls import Call, Interface
from jitlto.report.coverage import Cell, Coverage, natural
from jitlto.storage.check_result import CheckResult


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of images, by kind."""

    ltoir: int
    ptx: int

    @property
    def total(self) -> int:
        return self.ltoir + self.ptx

    @classmethod
    def of(cls, images: Iterable[Image]) -> Size:
        sizes: Counter[ImageKind] = Counter()
        for image in images:
            sizes[image.kind] += image.size
        return cls(sizes[ImageKind.LTOIR], sizes[ImageKind.PTX])


@dataclass(frozen=True, slots=True)
class FragmentView:
    """A fragment.

    Args:
        number: Its place in the database, from 0.
        cell: Its values in the dimensions of its group.
        entry: The demangled kernel; empty for a device fragment.
        provides, requires: Symbols that it defines for others, and that others define for it.
        seconds: Compile time, if known.
        faults: Number of failures of a check that name it.
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
    """A group.

    Args:
        supplied: Whether callers supply its definition; then it has no fragments.
        fragments: By key.
        apart: Parameters of fragments that belong to it and are not in this database.
        grid: Its product laid out; None if it has fewer than two dimensions or too many cells.
        seconds: Sum of the known compile times; None if none is known.
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
        """Fragments sorted by their values, numbers in numerical order."""
        return sorted(self.fragments, key=lambda view: ([natural(value) for value in view.cell], view.number))


@dataclass(frozen=True, slots=True)
class ImageSet:
    """The images of one kind, compiler and architecture.

    Args:
        toolchain: The compiler and its release.
        isa: The PTX ISA version; empty for LTO-IR.
        images, size: Number and bytes.
    """

    kind: ImageKind
    architecture: str
    toolchain: str
    isa: str
    images: int
    size: int


@dataclass(frozen=True, slots=True)
class FamilyView:
    """A family.

    Args:
        groups: Entrypoints first, then by name.
        options, link: Compiler options for callers' sources, and link options other than the defaults.
        drawing: The calls between groups; None if there are none.
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
        gaps: Number of fragments that a merge has left out.
        stored: Bytes of images as stored, equal ones once.
        timed: Number of fragments whose compile time is known; None if no timings were given.
        check: The result of a check.
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
        """An example for the filter: the first fragment's group, and one of its values."""
        views = [view for family in self.families for group in family.groups for view in group.fragments[:1]]
        return f"{views[0].key.group} {'='.join(views[0].key.parameters[0])}" if views and views[0].cell else ""
