"""Databases of schema 1, which jitlto 0.1 wrote: read whole and checked, and made into rows of the present schema.

Format::

    meta(name, value)             digest: SHA-256 over the sorted (kind, name, sha256) of all other rows; part; gaps
    family(name, record, sha256)  record: JSON, a FamilyRecord
    fragment(key, record, sha256) record: JSON, a Fragment
    blob(sha256, data)            as now
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jitlto.database import _serialization as serialization
from jitlto.database._hash_tree import SortedRows, hash_of, sha256
from jitlto.database._index_rows import make_rows
from jitlto.database._serialization import Root
from jitlto.database._sqlite_reader import list_schema
from jitlto.database._stored_rows import StoredRows

SCHEMA = 1
DDL = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE family(name TEXT PRIMARY KEY, record TEXT NOT NULL, sha256 TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE fragment(key TEXT PRIMARY KEY, record TEXT NOT NULL, sha256 TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE blob(sha256 TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE VIEW image AS SELECT f.key, json_extract(i.value, '$.kind') AS kind,
    json_extract(i.value, '$.architecture') AS architecture, json_extract(i.value, '$.sha256') AS sha256,
    json_extract(i.value, '$.size') AS size FROM fragment f, json_each(f.record, '$.images') i;
CREATE VIEW provides AS SELECT f.key, json_extract(s.value, '$.name') AS symbol,
    json_extract(s.value, '$.layout') AS layout FROM fragment f, json_each(f.record, '$.provides') s;
CREATE VIEW requires AS SELECT f.key, json_extract(s.value, '$.name') AS symbol,
    json_extract(s.value, '$.layout') AS layout FROM fragment f, json_each(f.record, '$.requires') s;
"""
_LISTED = list_schema(DDL)


class OldRows(StoredRows):
    """The rows of a database of schema 1: all of them, checked and in memory."""

    def _read_root(self) -> None:
        if self._reader.schema() != _LISTED:
            raise self._reader.damaged(f"its tables are not those of schema {SCHEMA}")
        listed: list[tuple[str, str, str]] = []
        records: dict[str, dict[str, bytes]] = {"family": {}, "fragment": {}}
        for table, name in (("family", "name"), ("fragment", "key")):
            for key, record, sha in self._reader.scan(table, name, "record", "sha256"):
                if sha256(record).encode() != sha:
                    raise self._reader.damaged(f"invalid row in table {table}")
                text = key.decode("utf-8", "replace")
                listed.append((table, text, sha.decode()))
                records[table][text] = record
        meta = {name.decode("utf-8", "replace"): value for name, value in self._reader.scan("meta", "name", "value")}
        digest = meta.pop("digest", b"").decode("utf-8", "replace")
        listed += [("meta", name, sha256(value)) for name, value in meta.items()]
        if sha256("\n".join(map(" ".join, sorted(listed))).encode()) != digest:
            raise self._reader.damaged("its rows are not those that were written")
        self.digest, self._kept = digest, meta
        self.decode(lambda: self._make_rows(records["family"], records["fragment"]))

    def _make_rows(self, family_records: dict[str, bytes], fragment_records: dict[str, bytes]) -> None:
        families = {name: serialization.decode_family(record) for name, record in family_records.items()}
        fragments = {key: serialization.decode_fragment(record) for key, record in fragment_records.items()}
        if any(name != family.name for name, family in families.items()):
            raise self._reader.damaged("a family is stored under a different name")
        if any(key != fragment.key.text for key, fragment in fragments.items()):
            raise self._reader.damaged("a fragment is stored under the key of a different one")
        # In memory, where all of it is anyway: a program may run where there is no directory for temporary files.
        rows = SortedRows(make_rows(families.values(), fragments.values()), in_memory=True)
        part, gaps = (sha256(self._kept[name]) if name in self._kept else None for name in ("part", "gaps"))
        self._buckets = list(rows.buckets())
        self.root = Root(SCHEMA, len(self._buckets), rows.count, "", tuple(sorted(families)), part, gaps)

    def _meta(self, name: str) -> bytes:
        return self._kept[name]

    def bucket(self, number: int) -> bytes:
        return self._buckets[number]

    def buckets(self) -> Iterator[bytes]:
        return iter(self._buckets)

    def hash_of_bucket(self, number: int) -> bytes:
        return hash_of(self._buckets[number])

    def check_tree(self, hashes: Sequence[bytes]) -> None:
        """All rows of the file were read."""
