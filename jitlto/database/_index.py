"""The index of a stored family: fragments by entrypoint and by symbol, read when they are looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial

from jitlto.base.cached import cached_property
from jitlto.database import _records as records
from jitlto.database._rows import ListedKey, Shape, StoredRows, SymbolUse
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Fragment, FragmentKey, Role
from jitlto.record.index import Index

_ENTRYPOINTS = partial(records.decode, tuple[ListedKey, ...])
_PROVIDERS = partial(records.decode, dict[str, tuple[ListedKey, ...]])
_USES = partial(records.decode, dict[str, SymbolUse])


class StoredIndex(Index):
    """An :class:`~jitlto.record.index.Index` that reads a database.

    With values for all parameters of a group, a fragment is looked up by its key; otherwise the keys of all candidates
    are read. The attributes of the base class, which hold all fragments, are read as a whole on first use.

    Args:
        rows: The rows of the database.
        family: The family's record, as it is stored.
        gaps: What a merge left out of the database.
        shapes: Returns the shapes of a family.
        read_all: Reads all fragments of the family and of those that it uses.
    """

    def __init__(
        self,
        rows: StoredRows,
        family: FamilyRecord,
        gaps: Iterable[FragmentKey],
        shapes: Callable[[str], Sequence[Shape]],
        read_all: Callable[[], Sequence[Fragment]],
    ) -> None:
        self._rows, self._shapes, self._read_all = rows, shapes, read_all
        self._family = family.name
        self._families = (family.name, *family.uses)
        self._uses: dict[str, dict[str, SymbolUse]] = {}  # by symbol
        self.gaps = [key for key in gaps if key.family in self._families]
        self._fragments: dict[FragmentKey, Fragment | None] = {}
        self._entries = {}
        self._candidates = {}

    @cached_property
    def _whole(self) -> Index:
        return Index(self._read_all())

    @property
    def entrypoints(self) -> Sequence[Fragment]:  # type: ignore[override]
        return self._whole.entrypoints

    @property
    def providers(self) -> Mapping[str, Sequence[Fragment]]:  # type: ignore[override]
        return self._whole.providers

    @cached_property
    def required(self) -> Set[str]:  # type: ignore[override]
        return _Required(self)

    def entry_groups(self) -> set[str]:
        return {shape.group for shape in self._entry_shapes()}

    def entry_keys(self, group: str | None) -> list[FragmentKey]:
        if not self._entry_shapes():
            return []
        listed = self._rows.require("entrypoint", self._family, _ENTRYPOINTS)
        return sorted(key for key in self._keys(self._family, listed) if group in (None, key.group))

    def provider_keys(self, symbol: str) -> list[FragmentKey]:
        if not any(use.shapes for use in self._use(symbol).values()):
            return []
        listed = self._rows.require("provider", symbol, _PROVIDERS)
        return sorted(key for name in self._families for key in self._keys(name, listed.get(name, ())))

    def find_entries(self, group: str | None, configuration: Mapping[str, str]) -> list[Fragment]:
        shapes = ((self._family, shape) for shape in self._entry_shapes() if group in (None, shape.group))
        found = self._find_by_key(shapes, configuration)
        if found is None:
            found = super().find_entries(group, configuration)
        return [fragment for fragment in found if fragment.role is Role.ENTRYPOINT]

    def find_providers(self, symbol: str, configuration: Mapping[str, str]) -> list[Fragment]:
        uses = self._use(symbol).items()
        shapes = ((name, self._shape(name, number)) for name, use in uses for number in use.shapes)
        found = self._find_by_key(shapes, configuration)
        if found is None:
            found = super().find_providers(symbol, configuration)
        return [f for f in found if f.role is Role.DEVICE and any(symbol == each.name for each in f.provides)]

    def requires(self, symbol: str) -> bool:
        """Return whether a fragment requires a symbol; of used families, only device fragments count."""
        uses = self._use(symbol).items()
        return any(Role.DEVICE in use.required_by or (use.required_by and name == self._family) for name, use in uses)

    def _find_by_key(
        self, shapes: Iterable[tuple[str, Shape]], configuration: Mapping[str, str]
    ) -> list[Fragment] | None:
        """Return the fragments of some shapes that agree with a configuration; None if their keys do not follow."""
        found = []
        for family, shape in shapes:
            given = {name: configuration[name] for name in shape.parameters if name in configuration}
            if any(value not in shape.parameters[name] for name, value in given.items()):
                continue
            if len(given) < len(shape.parameters):
                return None
            fragment = self._look_up(shape.key(family, given.values()))
            if fragment is None:  # a list decides: another key may be meant, and damage may hide this one
                return None
            found.append(fragment)
        return sorted(found, key=lambda fragment: fragment.key)

    def _get(self, key: FragmentKey) -> Fragment:
        fragment = self._look_up(key)
        if fragment is None:
            raise self._rows.damaged(f"there is no fragment {key}")
        return fragment

    def _look_up(self, key: FragmentKey) -> Fragment | None:
        if key not in self._fragments:
            self._fragments[key] = self._rows.find_fragment(key)
        return self._fragments[key]

    def _use(self, symbol: str) -> dict[str, SymbolUse]:
        if symbol not in self._uses:
            found = self._rows.find("symbol", symbol, _USES) or {}
            self._uses[symbol] = {name: found[name] for name in self._families if name in found}
        return self._uses[symbol]

    def _entry_shapes(self) -> list[Shape]:
        return [shape for shape in self._shapes(self._family) if shape.role is Role.ENTRYPOINT]

    def _shape(self, family: str, number: int) -> Shape:
        shapes = self._shapes(family)
        if number >= len(shapes):
            raise self._rows.damaged(f"family {family} has no shape {number}")
        return shapes[number]

    def _keys(self, family: str, listed: Iterable[ListedKey]) -> Iterator[FragmentKey]:
        for number, values in listed:
            shape = self._shape(family, number)
            if len(values) != len(shape.parameters):
                raise self._rows.damaged(f"a key of family {family} has another number of values than its shape")
            yield shape.key(family, values)


class _Required(Set[str]):
    """The symbols that fragments require; iterating reads all fragments."""

    def __init__(self, index: StoredIndex) -> None:
        self._index = index

    @classmethod
    def _from_iterable(cls, symbols: Iterable[str]) -> set[str]:  # type: ignore[override]
        return set(symbols)

    def __contains__(self, symbol: object) -> bool:
        return isinstance(symbol, str) and self._index.requires(symbol)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index._whole.required)

    def __len__(self) -> int:
        return len(self._index._whole.required)
