"""The rows of a fragment database: records of families and fragments, and the index rows that are made from them.

================ ======================== =========================================================
kind             key                      record
================ ======================== =========================================================
``family``       name                     a FamilyRecord
``fragment``     text of its key          a Fragment
``shapes``       family                   :class:`Shape` of its fragments, sorted
``entrypoints``  family                   :class:`KeyList` of its entrypoints
``symbol``       family, blank, symbol    :class:`KeyList` of the device fragments that provide it
``more``         number, kind, key        the keys of a KeyList beyond its first :data:`PAGE`, a page each
================ ======================== =========================================================
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from jitlto.base.versions import Version
from jitlto.database import _serialization as serialization
from jitlto.database._hash_tree import Row
from jitlto.database._serialization import Count
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Fragment, FragmentKey, Image, Name, Role
from jitlto.record.index import sorted_values

#: Keys in one row.
PAGE = 64


class Shape(Struct, frozen=True):
    """What fragments of one group, role and set of parameters have in common.

    Args:
        group, role: Theirs.
        parameters: The names of their parameters, sorted, and the values that occur.
        compilers: What made their images, with its version; sorted.
    """

    group: Name
    role: Role
    parameters: dict[str, tuple[str, ...]]
    compilers: tuple[tuple[str, Count, Count], ...]


class ShapeList(Struct, frozen=True):
    """The record of a family's shapes."""

    shapes: tuple[Shape, ...]


#: A key in a list: the number of its shape, and the values of the shape's parameters.
ListedKey = tuple[Count, tuple[str, ...]]


class KeyList(Struct, frozen=True, omit_defaults=True):
    """Fragments of one family, by key.

    Args:
        count: How many; those beyond the first :data:`PAGE` are in rows of their own.
        keys: The first of them, sorted.
        shapes: The numbers of their shapes, sorted.
        required_by: The roles of the family's fragments that require the symbol, sorted.
    """

    count: Count
    keys: tuple[ListedKey, ...]
    shapes: tuple[Count, ...]
    required_by: tuple[Role, ...] = ()


class KeyPage(Struct, frozen=True):
    """Further keys of a list."""

    keys: tuple[ListedKey, ...]


def name_page(number: int, kind: str, key: str) -> str:
    """Return the key of the row with page ``number`` of a list, counted from 1."""
    return f"{number} {kind} {key}"


def name_symbol(family: str, symbol: str) -> str:
    """Return the key of the row of a symbol."""
    return f"{family} {symbol}"


def make_rows(families: Iterable[FamilyRecord], fragments: Iterable[Fragment]) -> Iterator[Row]:
    """Yield all rows of a database of these families and fragments, in no particular order."""
    for record in families:
        yield "family", record.name, serialization.encode_family(record)
    index = IndexRows()
    for fragment in fragments:
        index.add(fragment)
        yield "fragment", fragment.key.text, serialization.encode_fragment(fragment)
    yield from index.rows()


class IndexRows:
    """Makes the index rows of fragments."""

    def __init__(self) -> None:
        self._families: dict[str, _FamilyIndex] = defaultdict(_FamilyIndex)

    def add(self, fragment: Fragment) -> None:
        """Take in a fragment."""
        self._families[fragment.key.family].add(fragment)

    def rows(self) -> Iterator[Row]:
        """Yield the index rows of all fragments that were added, in no particular order."""
        for name, family in self._families.items():
            yield from family.rows(name)


class _Form:
    """What a :class:`Shape` is made from: fragments of one group, role and names of parameters."""

    def __init__(self, group: str, role: Role, names: tuple[str, ...]) -> None:
        self.identity = group, role, names
        self.number = 0  # among the family's
        self._values: tuple[set[str], ...] = tuple(set() for _ in names)
        self._compilers: set[tuple[str, Version]] = set()

    def add(self, values: tuple[str, ...], images: Iterable[Image]) -> None:
        for known, value in zip(self._values, values, strict=True):
            known.add(value)
        for image in images:
            self._compilers.add((image.toolchain, image.version))

    def shape(self) -> Shape:
        group, role, names = self.identity
        compilers = sorted((name, version.major, version.minor) for name, version in self._compilers)
        return Shape(group, role, sorted_values(zip(names, self._values, strict=True)), tuple(compilers))


_Listed = tuple[_Form, tuple[str, ...]]


class _FamilyIndex:
    """Gathers the index rows of one family."""

    def __init__(self) -> None:
        self._forms: dict[tuple[str, Role, tuple[str, ...]], _Form] = {}
        self._entrypoints: list[_Listed] = []
        self._providers: dict[str, list[_Listed]] = defaultdict(list)
        self._required: dict[str, set[Role]] = defaultdict(set)

    def add(self, fragment: Fragment) -> None:
        key, role = fragment.key, fragment.role
        names, values = zip(*key.parameters, strict=True) if key.parameters else ((), ())
        form = self._forms.get((key.group, role, names))
        if form is None:
            form = self._forms[key.group, role, names] = _Form(key.group, role, names)
        form.add(values, fragment.images)
        listed = form, values
        if role is Role.ENTRYPOINT:
            self._entrypoints.append(listed)
        else:
            for name in {symbol.name for symbol in fragment.provides}:
                self._providers[name].append(listed)
        for symbol in fragment.requires:
            self._required[symbol.name].add(role)

    def rows(self, family: str) -> Iterator[Row]:
        forms = sorted(self._forms.values(), key=lambda form: form.identity)
        for number, form in enumerate(forms):
            form.number = number
        yield "shapes", family, serialization.encode(ShapeList(tuple(form.shape() for form in forms)))
        if self._entrypoints:
            yield from _list_rows("entrypoints", family, self._entrypoints)
        for name in self._providers.keys() | self._required.keys():
            roles = tuple(sorted(self._required.get(name, ())))
            yield from _list_rows("symbol", name_symbol(family, name), self._providers.get(name, ()), roles)


def _list_rows(
    kind: str,
    key: str,
    listed: Iterable[_Listed],
    required_by: tuple[Role, ...] = (),
) -> Iterator[Row]:
    keys = sorted((form.number, values) for form, values in listed)
    shapes = tuple(sorted({number for number, _ in keys}))
    yield kind, key, serialization.encode(KeyList(len(keys), tuple(keys[:PAGE]), shapes, required_by))
    for at in range(PAGE, len(keys), PAGE):
        page = KeyPage(tuple(keys[at : at + PAGE]))
        yield "more", name_page(at // PAGE, kind, key), serialization.encode(page)


def key_of(family: str, shape: Shape, values: Iterable[str]) -> FragmentKey:
    """Return the key of a fragment of a shape."""
    return FragmentKey(family, shape.group, tuple(zip(shape.parameters, values, strict=True)))
