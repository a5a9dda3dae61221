"""The content of a report: plain values gathered from a database, without reading any image."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod

from jitlto.base.mangling import base_name
from jitlto.base.text import format_bytes, hang, pluralize, word
from jitlto.database import FragmentDatabase
from jitlto.database.index import Index
from jitlto.plan.enumeration import Kernel, enumerate_kernels
from jitlto.record.family_record import GroupRecord
from jitlto.record.fragment import Fragment, Role, numbers_first
from jitlto.report import grid

_MOST_COUNTED = 10_000  # kernels, in about a second


@dataclass(frozen=True, slots=True)
class GroupView:
    """A declared group, the values of its parameters, and its fragments by these, numbers in numerical order."""

    record: GroupRecord
    values: Mapping[str, Sequence[str]]
    by_cell: Mapping[grid.Cell, Fragment]

    @property
    def grid(self) -> grid.Grid | None:
        """Its product as a table; None if it has one cell or too many."""
        return grid.draw(self.values, self.by_cell)

    @property
    def product(self) -> int:
        """The number of combinations of all values that occur."""
        return prod(map(len, self.values.values())) if self.by_cell else 0


@dataclass(frozen=True, slots=True)
class FamilyView:
    """A family as shown in the report; its groups are sorted by name, entrypoints first."""

    name: str
    groups: Sequence[GroupView]
    kernels: int | None  # None if too many to count, 0 of a part of a build
    images: Mapping[str, int]  # kinds, architectures and compilers, and the bytes of each
    #: Caller and callee, groups both, and the names of what is called, without types; the callee is empty where neither
    #: the database nor a caller provides it.
    calls: Mapping[tuple[str, str], Sequence[str]]

    @property
    def fragments(self) -> list[Fragment]:
        """All its fragments, by group."""
        return [each for group in self.groups for each in group.by_cell.values()]

    @property
    def summary(self) -> str:
        """How many fragments make how many kernels, as ``32 fragments → 96 kernels``."""
        some = f"more than {_MOST_COUNTED} kernels" if self.kernels is None else pluralize(self.kernels, "kernel")
        return pluralize(len(self.fragments), "fragment") + (f" → {some}" if self.kernels != 0 else "")

    def tree(self, columns: int, emphasize: Callable[[str], str] = str) -> Iterator[str]:
        """Yield it as a tree: lines of at most ``columns`` characters, where there is something to break."""
        yield f"{emphasize(self.name)}: {self.summary}"
        for group in self.groups:
            name, is_last = group.record.name, group is self.groups[-1]
            first, rule = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
            held = f"{pluralize(len(group.by_cell), 'fragment')}, {format_bytes(size(group.by_cell.values()))}"
            text = f"{group.record.role}, {'supplied by callers' if group.record.supplied else held}"
            called = [
                to or f"{', '.join(names)} (of no fragment here)"
                for (by, to), names in self.calls.items()
                if by == name
            ]
            text += f"; calls {', '.join(called)}" if called else ""
            begin, *rest = hang(f"{first}{name}: ", text, columns, f"{rule}    ")
            yield begin.replace(name, emphasize(name), 1)
            yield from rest
            width = max(map(len, group.values), default=0)
            for parameter, values in group.values.items():
                begins = (f"{rule}  {each:<{width}}  " for each in (parameter, ""))
                yield from hang(next(begins), ", ".join(map(word, values)), columns, next(begins))


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
        return [each for family in self.families for each in family.fragments]


def describe(database: FragmentDatabase, *, family: str | None = None) -> Report:
    """Gather the content of a report, of all families or of one."""
    images = {image.sha256: image.size for fragment in database.fragments(family) for image in fragment.images}
    families = [_family(name, database) for name in sorted(database.families) if family in (None, name)]
    return Report(database.path.name, database.digest, families, sum(images.values()))


def size(fragments: Iterable[Fragment]) -> int:
    """Return the bytes of all images of some fragments."""
    return sum(image.size for fragment in fragments for image in fragment.images)


def _family(name: str, database: FragmentDatabase) -> FamilyView:
    declared, fragments = database.families[name].groups, database.fragments(name)
    groups = [_group(group, [each for each in fragments if each.key.group == group.name]) for group in declared]
    groups.sort(key=lambda group: (group.record.role is not Role.ENTRYPOINT, group.record.name))
    index = database.index(name)
    images: Counter[str] = Counter()
    for image in (image for fragment in fragments for image in fragment.images):
        images[str(image)] += image.size
    kernels = 0 if database.part else _count_kernels(index)
    return FamilyView(name, groups, kernels, dict(sorted(images.items())), _calls(fragments, index))


def _count_kernels(index: Index) -> int | None:
    found = [*islice(enumerate_kernels(index), _MOST_COUNTED + 1)]
    return None if len(found) > _MOST_COUNTED else sum(isinstance(each, Kernel) for each in found)


def _group(record: GroupRecord, members: Sequence[Fragment]) -> GroupView:
    keys = [(dict(fragment.key.parameters), fragment) for fragment in members]
    by_cell = {tuple(values.get(name, "") for name in record.key): fragment for values, fragment in keys}
    values = {name: sorted({cell[n] for cell in by_cell}, key=numbers_first) for n, name in enumerate(record.key)}
    ordered = sorted(by_cell.items(), key=lambda item: [numbers_first(value) for value in item[0]])
    return GroupView(record, values, dict(ordered))


def _calls(fragments: Iterable[Fragment], index: Index) -> dict[tuple[str, str], list[str]]:
    """Return what fragments call of all that they are planned with; what none provides is of callers' groups."""
    providers = {name: {fragment.key.group for fragment in several} for name, several in index.providers.items()}
    suppliers = index.record.supplied_groups()
    called: dict[tuple[str, str], set[str]] = defaultdict(set)
    for fragment in fragments:
        for symbol in fragment.requires:
            for callee in providers.get(symbol.name) or {group.name for group in suppliers(symbol.name)} or {""}:
                called[fragment.key.group, callee].add(base_name(symbol.name))
    return {edge: sorted(names) for edge, names in sorted(called.items())}
