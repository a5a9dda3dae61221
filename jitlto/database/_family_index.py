"""The index of a stored family: fragments by entrypoint and by symbol, read when they are looked up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Protocol

from jitlto.base.cached import cached_property
from jitlto.database import _serialization as serialization
from jitlto.database._index_rows import KeyList, KeyPage, ListedKey, Shape, key_of, name_page, name_symbol
from jitlto.database._stored_rows import StoredRows
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Fragment, FragmentKey, Role
from jitlto.record.index import Index, agrees


class Database(Protocol):
    """The parts of a database that an index uses beside its rows."""

    @property
    def gaps(self) -> tuple[FragmentKey, ...]: ...
    def shapes(self, family: str) -> tuple[Shape, ...]: ...
    def planned(self, family: str) -> tuple[FamilyRecord, list[Fragment]]: ...


class FamilyIndex(Index):
    """An :class:`~jitlto.record.index.Index` that reads a database.

    With values for all parameters of a group, a fragment is looked up by its key; otherwise the keys of all candidates
    are read. The attributes of the base class, which hold all fragments, are read as a whole on first use.

    Args:
        database: The open database.
        rows: Its rows.
        family: The family's record, as it is stored.
    """

    def __init__(self, database: Database, rows: StoredRows, family: FamilyRecord) -> None:
        self._database = database
        self._rows = rows
        self._family = family.name
        self._families = (family.name, *family.uses)
        self._fragments: dict[FragmentKey, Fragment | None] = {}
        self._provides: dict[FragmentKey, frozenset[str]] = {}

    @cached_property
    def gaps(self) -> Sequence[FragmentKey]:  # type: ignore[override]
        return [key for key in self._database.gaps if key.family in self._families]

    # --- as a whole ---

    @cached_property
    def _whole(self) -> Index:
        return Index(self._database.planned(self._family)[1])

    @property
    def entrypoints(self) -> Sequence[Fragment]:  # type: ignore[override]
        return self._whole.entrypoints

    @property
    def providers(self) -> Mapping[str, Sequence[Fragment]]:  # type: ignore[override]
        return self._whole.providers

    @cached_property
    def required(self) -> Set[str]:  # type: ignore[override]
        return _Required(self)

    # --- look-ups ---

    def entry_groups(self) -> set[str]:
        return {shape.group for shape in self._database.shapes(self._family) if shape.role is Role.ENTRYPOINT}

    def entry_keys(self, group: str | None) -> list[FragmentKey]:
        keys = self._keys(self._family, "entrypoints", self._family)
        return sorted(key for key in keys if group in (None, key.group))

    def find_entries(self, group: str | None, configuration: Mapping[str, str]) -> list[Fragment]:
        if "_whole" in self.__dict__:
            return self._whole.find_entries(group, configuration)
        found = self._find(self._family, "entrypoints", self._family, configuration, group)
        return sorted((f for f in found if f.role is Role.ENTRYPOINT), key=lambda fragment: fragment.key)

    def provider_keys(self, symbol: str) -> list[FragmentKey]:
        return sorted(key for name in self._families for key in self._keys(name, "symbol", name_symbol(name, symbol)))

    def find_providers(self, symbol: str, configuration: Mapping[str, str]) -> list[Fragment]:
        if "_whole" in self.__dict__:
            return self._whole.find_providers(symbol, configuration)
        found = [
            fragment
            for name in self._families
            for fragment in self._find(name, "symbol", name_symbol(name, symbol), configuration)
            if fragment.role is Role.DEVICE and symbol in self._provided(fragment)
        ]
        return sorted(found, key=lambda fragment: fragment.key)

    def provider_parameters(self, symbol: str) -> set[str]:
        return self._whole.provider_parameters(symbol)

    def find_required(self, symbols: Iterable[str]) -> set[str]:
        """Return those symbols that a fragment requires; of used families, only device fragments count."""
        if "_whole" in self.__dict__:
            return {symbol for symbol in symbols if symbol in self._whole.required}
        found = set()
        for name in self._families:
            asked = {name_symbol(name, symbol): symbol for symbol in symbols}
            for row, listed in self._rows.find_all("symbol", asked, _decode_list).items():
                if Role.DEVICE in listed.required_by or (listed.required_by and name == self._family):
                    found.add(asked[row])
        return found

    # --- rows ---

    def _list(self, kind: str, key: str) -> KeyList | None:
        return self._rows.find(kind, key, _decode_list)

    def _find(
        self, family: str, kind: str, key: str, configuration: Mapping[str, str], group: str | None = None
    ) -> Iterator[Fragment]:
        """Yield the fragments that a list may name and that agree with a configuration."""
        listed = self._list(kind, key)
        if listed is None:
            return
        partly = set()
        for number in listed.shapes:
            shape = self._shape(family, number)
            given = {name: configuration[name] for name in shape.parameters if name in configuration}
            if group not in (None, shape.group) or any(v not in shape.parameters[n] for n, v in given.items()):
                continue
            if len(given) < len(shape.parameters):
                partly.add(number)
            elif (fragment := self._get(key_of(family, shape, given.values()))) is not None:
                yield fragment
        if not partly:
            return
        for number, values in self._listed(listed, kind, key):
            if number in partly:
                candidate = self._key(family, number, values)
                if agrees(candidate, configuration):
                    yield self._get(candidate) or self._rows.require(
                        "fragment", candidate.text, serialization.decode_fragment
                    )

    def _keys(self, family: str, kind: str, key: str) -> list[FragmentKey]:
        listed = self._list(kind, key)
        if listed is None:
            return []
        return [self._key(family, number, values) for number, values in self._listed(listed, kind, key)]

    def _listed(self, listed: KeyList, kind: str, key: str) -> Iterable[ListedKey]:
        """Yield all keys of a list, page by page."""
        yield from listed.keys
        count, page = len(listed.keys), 1
        while count < listed.count:
            more = self._rows.require(
                "more", name_page(page, kind, key), lambda record: serialization.decode(KeyPage, record)
            )
            yield from more.keys
            count, page = count + len(more.keys), page + 1

    def _shape(self, family: str, number: int) -> Shape:
        shapes = self._database.shapes(family)
        if number >= len(shapes):
            raise self._rows.inconsistent(f"family {family} has no shape {number}")
        return shapes[number]

    def _key(self, family: str, number: int, values: Sequence[str]) -> FragmentKey:
        shape = self._shape(family, number)
        if len(values) != len(shape.parameters):
            raise self._rows.inconsistent(f"a key of family {family} has another number of values than its shape")
        return key_of(family, shape, values)

    def _get(self, key: FragmentKey) -> Fragment | None:
        if key not in self._fragments:
            self._fragments[key] = self._rows.find_fragment(key)
        return self._fragments[key]

    def _provided(self, fragment: Fragment) -> frozenset[str]:
        if fragment.key not in self._provides:
            self._provides[fragment.key] = frozenset(symbol.name for symbol in fragment.provides)
        return self._provides[fragment.key]


def _decode_list(record: bytes) -> KeyList:
    return serialization.decode(KeyList, record)


class _Required(Set[str]):
    """The symbols that fragments require; iterating reads all fragments, and operators look up all symbols at once."""

    def __init__(self, index: FamilyIndex) -> None:
        self._index = index

    def __contains__(self, symbol: object) -> bool:
        return isinstance(symbol, str) and bool(self._index.find_required((symbol,)))

    def __and__(self, symbols: Iterable[object]) -> set[str]:
        return self._index.find_required([symbol for symbol in symbols if isinstance(symbol, str)])

    __rand__ = __and__

    def __rsub__(self, symbols: Iterable[str]) -> set[str]:
        return set(symbols).difference(self & symbols)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index._whole.required)

    def __len__(self) -> int:
        return len(self._index._whole.required)
