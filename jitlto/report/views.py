"""What a report says of a database, as plain data: the values that a page shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from jitlto.model.fragment import Fragment, FragmentKey, Image, ImageKind, Role
from jitlto.report import graph, grid
from jitlto.report.calls import Call, Interface
from jitlto.report.dimensions import Cell, Coverage, natural
from jitlto.storage.check_result import CheckResult


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of images, by kind."""

    ltoir: int
    ptx: int

    @property
    def total(self) -> int:
        """Of both kinds."""
        return self.ltoir + self.ptx

    @classmethod
    def of(cls, images: Iterable[Image]) -> Size:
        """The size of some images."""
        sizes: Counter[ImageKind] = Counter()
        for image in images:
            sizes[image.kind] += image.size
        return cls(sizes[ImageKind.LTOIR], sizes[ImageKind.PTX])


@dataclass(frozen=True, slots=True)
class FragmentView:
    """A fragment.

    Parameters
    ----------
    number : int
        Its place in the database, from 0.
    cell : Cell
        Its value in each dimension of its group.
    entry : str
        The kernel as a person wrote it; empty for a device fragment.
    provides, requires : tuple of Interface
        What it defines for others, and what others define for it.
    seconds : float or None
        How long its compile took, if known.
    faults : int
        In how many places a check found something that does not hold and named it.
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
        """Its key."""
        return self.fragment.key


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group: what exists of it, and how much that takes.

    Parameters
    ----------
    supplied : bool
        Whether callers supply its definition; then it has no fragments.
    fragments : tuple of FragmentView
        By key.
    apart : tuple of tuple of (str, str)
        The parameters of fragments that belong to it and are not here.
    grid : Grid or None
        Its product laid out; None where it has less than two dimensions, or too many cells to look at.
    seconds : float or None
        Of all compiles whose time is known; None if none is.
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
        """The bytes of its largest fragment."""
        return max((view.size.total for view in self.fragments), default=0)

    @property
    def by_cell(self) -> dict[Cell, FragmentView]:
        """Its fragments by their values."""
        return {view.cell: view for view in self.fragments}

    @property
    def by_value(self) -> list[FragmentView]:
        """Its fragments, numbers by size and the rest by name."""
        return sorted(self.fragments, key=lambda view: ([natural(value) for value in view.cell], view.number))


@dataclass(frozen=True, slots=True)
class Making:
    """Images of one kind, made by one compiler for one architecture.

    Parameters
    ----------
    toolchain : str
        The compiler and its release.
    isa : str
        The PTX ISA version; empty for LTO-IR.
    images, size : int
        How many, and their bytes.
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

    Parameters
    ----------
    groups : tuple of GroupView
        Entrypoints first, then by name.
    making : tuple of Making
        What its images are.
    options, link : tuple of str
        Compiler options for callers' sources, and link options other than the defaults.
    drawing : Drawing or None
        Which group calls which; None if none does.
    """

    name: str
    groups: tuple[GroupView, ...]
    fragments: int
    size: Size
    seconds: float | None
    making: tuple[Making, ...]
    options: tuple[str, ...]
    link: tuple[str, ...]
    interfaces: tuple[Interface, ...]
    calls: tuple[Call, ...]
    drawing: graph.Drawing | None


@dataclass(frozen=True, slots=True)
class Report:
    """All that a report says.

    Parameters
    ----------
    title : str
        The file's name.
    part : str or None
        Which part of a build it is, if it is none in one piece.
    gaps : int
        How many fragments of the whole a merge has left out.
    stored : int
        Bytes of images as the database keeps them, equal ones once.
    timed : int or None
        Of how many fragments the compile's time is known; None if no timings were given.
    check : CheckResult or None
        The result of a check.
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
        """How many groups, of all families."""
        return sum(len(family.groups) for family in self.families)

    @property
    def example(self) -> str:
        """What one may filter by: the first fragment's group, and one of its values."""
        views = [view for family in self.families for group in family.groups for view in group.fragments[:1]]
        return f"{views[0].key.group} {'='.join(views[0].key.parameters[0])}" if views and views[0].cell else ""
