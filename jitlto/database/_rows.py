"""The rows of a fragment database, each checked when it is read.

========== ========== =======================================================================
table      key        record
========== ========== =======================================================================
family     name       a FamilyRecord
shape      family     the list of its :class:`Shape`
entrypoint family     the list of its entrypoints, as :data:`ListedKey`
symbol     symbol     family → :class:`SymbolUse`, of each symbol that a fragment names
provider   symbol     family → the list of its device fragments that provide the symbol
fragment   key's text a Fragment
========== ========== =======================================================================

A look-up goes from one checked row to the next. A row that is not found is searched for among all rows of its table,
whose hash the root has, so that damage never makes a row seem absent.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeAlias, TypeVar

from msgspec import MsgspecError, Struct
from msgspec.structs import astuple

from jitlto.base.errors import JitltoError
from jitlto.base.files import APPLICATION_ID
from jitlto.database import _records as records
from jitlto.database._reader import SqliteReader, list_schema
from jitlto.database._records import Root
from jitlto.record.family_record import FamilyRecord, PartRecord
from jitlto.record.fragment import Count, Fragment, FragmentKey, Name, Role, sorted_values

T = TypeVar("T")
SCHEMA = 4
INDEXES = ("shape", "entrypoint", "symbol", "provider")
TABLES = ("family", *INDEXES, "fragment")
_ROWS = "CREATE TABLE {}(key TEXT PRIMARY KEY, record TEXT NOT NULL, sha256 BLOB NOT NULL) WITHOUT ROWID;\n"
_OTHERS = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE blob(sha256 TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE VIEW image AS SELECT f.key, json_extract(i.value, '$.kind') AS kind,
    json_extract(i.value, '$.architecture[0]') || json_extract(i.value, '$.architecture[1]') AS architecture,
    json_extract(i.value, '$.sha256') AS sha256, json_extract(i.value, '$.size') AS size
    FROM fragment f, json_each(f.record, '$.images') i;
CREATE VIEW provides AS SELECT f.key, json_extract(s.value, '$.name') AS symbol,
    json_extract(s.value, '$.layout') AS layout FROM fragment f, json_each(f.record, '$.provides') s;
CREATE VIEW requires AS SELECT f.key, json_extract(s.value, '$.name') AS symbol,
    json_extract(s.value, '$.layout') AS layout FROM fragment f, json_each(f.record, '$.requires') s;
"""
DDL = _OTHERS + "".join(map(_ROWS.format, TABLES))
_LISTED = list_schema(DDL)


class Shape(Struct, frozen=True):
    """What fragments of one group, role and set of parameters, sorted, have in common, and the values that occur."""

    group: Name
    role: Role
    parameters: dict[str, tuple[str, ...]]

    def key(self, family: str, values: Iterable[str]) -> FragmentKey:
        """Return the key of a fragment of a family that has this shape and these values."""
        return FragmentKey(family, self.group, tuple(zip(self.parameters, values, strict=True)))


class SymbolUse(Struct, frozen=True, omit_defaults=True):
    """What a family has to do with a symbol."""

    shapes: tuple[Count, ...] = ()  # the numbers of those of its device fragments that provide it, sorted
    required_by: tuple[Role, ...] = ()  # the roles of its fragments that require it, sorted


#: A key in a list: the number of its shape, and the values of the shape's parameters.
ListedKey: TypeAlias = tuple[Count, tuple[str, ...]]
#: Table, key and record.
Row: TypeAlias = tuple[str, str, bytes]


def sha256(data: bytes) -> str:
    """Return the SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def checksum(table: str, key: bytes, record: bytes) -> bytes:
    """Return the checksum of a row, which no other row has."""
    return hashlib.sha256(b"%s %s %s" % (table.encode(), key, record)).digest()


def digest_rows(checksums: Iterable[bytes]) -> str:
    """Return the hash over the checksums of a table's rows, sorted."""
    return sha256(b"".join(sorted(checksums)))


def make_index(fragments: Iterable[Fragment]) -> list[Row]:
    """Return the rows of all tables that are made from fragments, sorted."""
    forms: dict[tuple[str, str, Role, tuple[str, ...]], list[Fragment]] = defaultdict(list)
    for fragment in fragments:
        key = fragment.key
        forms[key.family, key.group, fragment.role, tuple(name for name, _ in key.parameters)].append(fragment)
    shapes: dict[str, list[Shape]] = defaultdict(list)
    entrypoints: dict[str, list[ListedKey]] = defaultdict(list)
    providers: dict[str, dict[str, list[ListedKey]]] = defaultdict(lambda: defaultdict(list))
    uses: dict[str, dict[str, tuple[set[int], set[Role]]]] = defaultdict(lambda: defaultdict(lambda: (set(), set())))
    for (family, group, role, _), several in sorted(forms.items()):
        for fragment in several:
            listed = len(shapes[family]), tuple(value for _, value in fragment.key.parameters)
            if role is Role.ENTRYPOINT:
                entrypoints[family].append(listed)
            else:
                for name in {symbol.name for symbol in fragment.provides}:
                    providers[name][family].append(listed)
                    uses[name][family][0].add(listed[0])
            for symbol in fragment.requires:
                uses[symbol.name][family][1].add(role)
        values = ((name, (value,)) for fragment in several for name, value in fragment.key.parameters)
        shapes[family].append(Shape(group, role, sorted_values(values)))
    rows = [("shape", name, records.encode(each)) for name, each in shapes.items()]
    rows += (("entrypoint", name, records.encode(sorted(keys))) for name, keys in entrypoints.items())
    for symbol_name, by_family in uses.items():
        found = {name: SymbolUse(tuple(sorted(own)), tuple(sorted(roles))) for name, (own, roles) in by_family.items()}
        rows.append(("symbol", symbol_name, records.encode(found)))
    for symbol_name, listings in providers.items():
        rows.append(("provider", symbol_name, records.encode({name: sorted(keys) for name, keys in listings.items()})))
    return sorted(rows)


def make_rows(families: Iterable[FamilyRecord], fragments: Iterable[Fragment]) -> Iterator[Row]:
    """Yield all rows of a database, sorted by table in the order of :data:`TABLES` and by key."""
    for record in sorted(families, key=lambda family: family.name):
        yield "family", record.name, records.encode(record)
    in_order = sorted(fragments, key=lambda fragment: fragment.key.text)
    yield from sorted(make_index(in_order), key=lambda row: (TABLES.index(row[0]), row[1]))
    for fragment in in_order:
        yield "fragment", fragment.key.text, records.encode_fragment(fragment)


class StoredRows:
    """The rows of a stored database.

    Raises:
        DatabaseError: If the file is no database of this schema, or its root is damaged. All methods raise it if what
            they read is damaged.
    """

    def __init__(self, reader: SqliteReader) -> None:
        self._reader, self.damaged = reader, reader.damaged
        # Rows that were read, and the bytes that others may have: in a forged file, rows may share pages.
        self._known: set[tuple[str, str]] = set()
        self._remaining = reader.size
        self._keys: dict[str, frozenset[str]] = {}  # of tables that were read whole
        if reader.pragma("application_id") != int.from_bytes(APPLICATION_ID):
            raise reader.foreign()
        if reader.pragma("page_count") * reader.pragma("page_size") != reader.size:
            raise reader.damaged("its size is not the one that its header has")
        if (schema := reader.pragma("user_version")) != SCHEMA:
            is_earlier = schema in range(SCHEMA)
            whose = "an earlier" if is_earlier else "another"
            raise reader.error(
                f"has schema {schema!r}, of {whose} jitlto; this one reads {SCHEMA}",
                "build the database again" if is_earlier else "upgrade jitlto, or build the database again",
                code="database-schema",
            )
        # The schema must match exactly: a file with views, triggers, virtual tables, indexes or defaults of its own is
        # rejected before a statement could use them.
        if sorted(reader.query("SELECT type, name, tbl_name, sql FROM sqlite_master")) != _LISTED:
            raise reader.damaged(f"its tables are not those of schema {SCHEMA}")
        text = self._meta("root")
        #: SHA-256 of the content; equal digests mean equal databases.
        self.digest = sha256(text)
        if self._meta("digest") != self.digest.encode():
            raise reader.damaged("its digest is not that of its content")
        #: What the digest is computed from.
        self.root = root = self.decode(partial(records.decode, Root), text)
        if root.schema != SCHEMA or root.tables.keys() != set(TABLES):
            raise reader.damaged("invalid root")

    def decode(self, decode: Callable[[bytes], T], record: bytes) -> T:
        """Return what a decoder returns; its errors become a DatabaseError."""
        try:
            return decode(record)
        except (ValueError, RecursionError, MsgspecError, JitltoError) as error:
            # The checksums match, so the file was forged rather than damaged.
            raise self.damaged(f"a record is not what its schema says ({error!r:.200})") from error

    def part(self) -> PartRecord | None:
        """Return the record of the part that this is; None if it is complete."""
        if self.root.part is None:
            return None
        record = self._meta("part")
        if sha256(record) != self.root.part:
            raise self.damaged("invalid row in table meta: part")
        return self.decode(partial(records.decode, PartRecord), record)

    def _meta(self, name: str) -> bytes:
        (value,) = self._reader.find("meta", "name", name, "value") or (b"",)
        return value if isinstance(value, bytes) else b""

    def find(self, table: str, key: str, decode: Callable[[bytes], T]) -> T | None:
        """Return the decoded record of a row; None if there is no such row."""
        row = self._reader.find(table, "key", key, "record", "sha256")
        if row is None:
            if table not in self._keys:  # damage may hide it: all of the table is read
                self._keys[table] = frozenset(key for key, _ in self.scan(table))
            if key in self._keys[table]:
                raise self.damaged(f"{table} {key} cannot be found")
            return None
        record, expected = row
        if not isinstance(record, bytes) or checksum(table, key.encode(), record) != expected:
            raise self.damaged(f"{table} {key} does not match its checksum")
        if (table, key) not in self._known:
            self._known.add((table, key))
            self._remaining -= len(record)
        if self._remaining < 0:
            raise self.damaged("its rows are longer than the file")
        return self.decode(decode, record)

    def require(self, table: str, key: str, decode: Callable[[bytes], T]) -> T:
        """Return the decoded record of a row that another row refers to."""
        record = self.find(table, key, decode)
        if record is None:
            raise self.damaged(f"there is no {table} {key}")
        return record

    def scan(self, table: str) -> Iterator[tuple[str, bytes]]:
        """Yield keys and records of all rows of a table, sorted by key."""
        checksums = []
        for name, record, expected in self._reader.scan(table, "key", "record", "sha256"):
            key = name.decode("utf-8", "replace")
            if checksum(table, name, record) != expected:
                raise self.damaged(f"{table} {key} does not match its checksum")
            checksums.append(expected)
            yield key, record
        if digest_rows(checksums) != self.root.tables[table]:
            raise self.damaged(f"the rows of table {table} are not those that were written")

    def fragments(self) -> list[Fragment]:
        """Return all fragments, sorted by key."""
        found = (self.decode_fragment(key, record) for key, record in self.scan("fragment"))
        return sorted(found, key=lambda fragment: astuple(fragment.key))

    def find_fragment(self, key: FragmentKey) -> Fragment | None:
        """Return the fragment with a key; None if there is none."""
        return self.find("fragment", key.text, partial(self.decode_fragment, key.text))

    def decode_fragment(self, key: str, record: bytes) -> Fragment:
        """Return the fragment of a row."""
        return self.decode(partial(records.decode_fragment, key), record)
