"""Databases of fragments made by hand, whose images nobody reads."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from jitlto.base.versions import Architecture
from jitlto.database import FragmentDatabase, writer
from jitlto.database.index import Index
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import Fragment, FragmentKey, agrees
from jitlto.record.options import LinkOptions

FAMILY = FamilyRecord("f", (), LinkOptions(), (Architecture(75),), (), ())


def open_written(fragments: Iterable[Fragment], families: Iterable[FamilyRecord] = ()) -> FragmentDatabase:
    """Write fragments, of the family ``f`` if no families are given, and open the database."""
    families = [*families] or [FAMILY]
    with TemporaryDirectory() as directory:
        path = Path(directory, "f.fragdb")
        writer.write(path, families, fragments, {})
        return FragmentDatabase(path)  # which remains readable


def index_of(fragments: Iterable[Fragment]) -> Index:
    """Return the index of fragments of the family ``f``."""
    return open_written(fragments).index("f")


class WholeIndex(Index):
    """The same look-ups by comparing every fragment: the judge of those that read a database."""

    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self._all, self.record = fragments, FAMILY
        self._read_all, self._fragments = (lambda: fragments), {}

    def requires(self, symbol: str) -> bool:
        return any(symbol == each.name for fragment in self._all for each in fragment.requires)

    def entry_keys(self, group: str | None) -> list[FragmentKey]:
        return [fragment.key for fragment in self.find_entries(group, {})]

    def provider_keys(self, symbol: str) -> list[FragmentKey]:
        return [fragment.key for fragment in self.providers.get(symbol, ())]

    def provider_parameters(self, symbol: str) -> set[str]:
        return {name for key in self.provider_keys(symbol) for name, _ in key.parameters}

    def find_entries(self, group: str | None, configuration: Mapping[str, str]) -> list[Fragment]:
        return [f for f in self.entrypoints if group in (None, f.key.group) and agrees(f.key.parameters, configuration)]

    def find_providers(self, symbol: str, configuration: Mapping[str, str]) -> list[Fragment]:
        return [f for f in self.providers.get(symbol, ()) if agrees(f.key.parameters, configuration)]
