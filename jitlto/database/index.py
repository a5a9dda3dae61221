"""The index of a family: its fragments by entrypoint and by symbol, read when they are looked up."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from jitlto.base.cached import cached_property
from jitlto.database import _records as records
from jitlto.database._rows import ListedKey, Shape, StoredRows, SymbolUse
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Fragment, FragmentKey, Role

_ENTRYPOINTS = partial(records.decode, tuple[ListedKey, ...])
_PROVIDERS = partial(records.decode, dict[str, tuple[ListedKey, ...]])
_USES = partial(records.decode, dict[str, SymbolUse])
_Pairs: TypeAlias = tuple[tuple[str, str], ...]


class Index:
    """A family's fragments, and the device fragments of those that it uses, by role and by symbol.

    With values for all parameters of a group, a fragment is looked up by its key; otherwise the keys of all candidates
    are read. ``family`` is the record with the groups of those that it uses; ``read_all`` reads all of these fragments,
    sorted by key.
    """

    def __init__(
        self,
        rows: StoredRows,
        family: FamilyRecord,
        shapes: Mapping[str, Sequence[Shape]],
        read_all: Callable[[], Sequence[Fragment]],
    ) -> None:
        self._rows, self._shapes, self._read_all = rows, shapes, read_all
        self.record, self._family = family, family.name
        self._families = (family.name, *family.uses)
        self._uses: dict[str, dict[str, SymbolUse]] = {}  # by symbol
        self._fragments: dict[FragmentKey, Fragment | None] = {}
        # Keys by those of their parameters that configurations give; of the entrypoints of a group or the providers of
        # a symbol, by the names of such parameters.
        self._groups: dict[tuple[Role, str | None, frozenset[str]], dict[_Pairs, list[FragmentKey]]] = {}

    @cached_property
    def fragments(self) -> Sequence[Fragment]:
        """All of them, sorted by key; all are read at the first use."""
        fragments = self._read_all()
        self._fragments.update((fragment.key, fragment) for fragment in fragments)
        return fragments

    @cached_property
    def entrypoints(self) -> Sequence[Fragment]:
        """All entrypoints."""
        return [fragment for fragment in self.fragments if fragment.role is Role.ENTRYPOINT]

    @cached_property
    def providers(self) -> Mapping[str, Sequence[Fragment]]:
        """All device fragments by the symbols that they provide."""
        providers: dict[str, list[Fragment]] = defaultdict(list)
        for fragment in self.fragments:
            if fragment.role is Role.DEVICE:
                for symbol in fragment.provides:
                    providers[symbol.name].append(fragment)
        return dict(providers)

    @cached_property
    def required(self) -> frozenset[str]:
        """The symbols that fragments require."""
        return frozenset(symbol.name for fragment in self.fragments for symbol in fragment.requires)

    def requires(self, symbol: str) -> bool:
        """Return whether a fragment requires a symbol."""
        uses = self._use(symbol).items()
        return any(Role.DEVICE in use.required_by or (use.required_by and name == self._family) for name, use in uses)

    def entry_keys(self, group: str | None) -> list[FragmentKey]:
        """Return the keys of all entrypoints, or of those of one group; sorted."""
        if not self._entry_shapes():
            return []
        listed = self._rows.require("entrypoint", self._family, _ENTRYPOINTS)
        return sorted(key for key in self._keys(self._family, listed) if group in (None, key.group))

    def provider_keys(self, symbol: str) -> list[FragmentKey]:
        """Return the keys of the device fragments that provide a symbol, sorted."""
        if not any(use.shapes for use in self._use(symbol).values()):
            return []
        listed = self._rows.require("provider", symbol, _PROVIDERS)
        return sorted(key for name in self._families for key in self._keys(name, listed.get(name, ())))

    def provider_parameters(self, symbol: str) -> set[str]:
        """Return the parameters of the device fragments that provide a symbol."""
        return {name for _, shape in self._provider_shapes(symbol) for name in shape.parameters}

    def find_entries(self, group: str | None, configuration: Mapping[str, str]) -> list[Fragment]:
        """Return the entrypoints, of one group if it is given, that agree with a configuration; sorted by key."""
        shapes = [(self._family, shape) for shape in self._entry_shapes() if group in (None, shape.group)]
        found = self._find(Role.ENTRYPOINT, group, shapes, partial(self.entry_keys, group), configuration)
        return [fragment for fragment in found if fragment.role is Role.ENTRYPOINT]

    def find_providers(self, symbol: str, configuration: Mapping[str, str]) -> list[Fragment]:
        """Return the device fragments that provide a symbol and agree with a configuration, sorted by key."""
        shapes = self._provider_shapes(symbol)
        found = self._find(Role.DEVICE, symbol, shapes, partial(self.provider_keys, symbol), configuration)
        return [f for f in found if f.role is Role.DEVICE and any(symbol == each.name for each in f.provides)]

    def _find(
        self,
        role: Role,
        name: str | None,
        shapes: Sequence[tuple[str, Shape]],
        list_keys: Callable[[], list[FragmentKey]],
        configuration: Mapping[str, str],
    ) -> Iterable[Fragment]:
        """Return the fragments of some shapes that agree with a configuration, by key, or else of those in a list."""
        wanted, found = set[_Pairs](), list[Fragment | None]()
        for family, shape in shapes:
            given = {each: configuration[each] for each in shape.parameters if each in configuration}
            if all(value in shape.parameters[each] for each, value in given.items()):
                wanted.add(tuple(given.items()))
                is_whole = len(given) == len(shape.parameters)
                found.append(self._look_up(shape.key(family, given.values())) if is_whole else None)
        if all(found):
            return sorted(filter(None, found), key=lambda fragment: fragment.key)
        # A list decides, which is grouped by what is given of each key, and configurations mostly give the same: not
        # all is given, or there is no such fragment: another key may be meant, and damage may hide this one.
        names = frozenset(each for _, shape in shapes for each in shape.parameters if each in configuration)
        groups = self._groups.get((role, name, names))
        if groups is None:
            groups = defaultdict(list)
            for key in list_keys():
                groups[tuple(pair for pair in key.parameters if pair[0] in names)].append(key)
            self._groups[role, name, names] = groups  # now that it is whole: another thread may look into it
        return map(self._get, sorted(key for pairs in wanted for key in groups.get(pairs, ())))

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
        return [shape for shape in self._shapes.get(self._family, ()) if shape.role is Role.ENTRYPOINT]

    def _provider_shapes(self, symbol: str) -> list[tuple[str, Shape]]:
        return [(name, self._shape(name, number)) for name, use in self._use(symbol).items() for number in use.shapes]

    def _shape(self, family: str, number: int) -> Shape:
        shapes = self._shapes.get(family, ())
        if number >= len(shapes):
            raise self._rows.damaged(f"family {family} has no shape {number}")
        return shapes[number]

    def _keys(self, family: str, listed: Iterable[ListedKey]) -> Iterable[FragmentKey]:
        for number, values in listed:
            shape = self._shape(family, number)
            if len(values) != len(shape.parameters):
                raise self._rows.damaged(f"a key of family {family} has another number of values than its shape")
            yield shape.key(family, values)
