"""The fragment database: one SQLite file, written once by the build side, read by the run side.

The file may be damaged or hostile: it is never written here, no journal beside it is played back, none of its own SQL
is run, and neither time nor memory exceeds what a file of its size can need. Source: SQLite's «Defense Against The Dark
Arts».

Format (schema 1; ``docs/database.md`` describes it for readers in other languages)::

    meta(name, value)             digest: SHA-256 over the sorted (kind, name, sha256) of all other rows
                                  part: JSON, a PartRecord; only in the part that one shard built
                                  gaps: JSON, the keys of fragments that a merge left out; only if it left any out
    family(name, record, sha256)  record: JSON, a FamilyRecord: the part of family.toml that the run side needs
    fragment(key, record, sha256) record: JSON, a Fragment
    blob(sha256, data)            the bytes of images, by content

Times, paths and machine names stay outside, so that the same inputs give the same bytes.

This module is longer than most because every byte of a file that is not trusted is read in it.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from jitlto.errors import DatabaseError, JitltoError
from jitlto.model.family_record import FamilyRecord
from jitlto.model.fragment import Fragment, FragmentKey, Image
from jitlto.model.text import check_type
from jitlto.storage import serialization
from jitlto.storage.files import identity
from jitlto.storage.serialization import InvalidRecordError

SCHEMA = 1
APPLICATION_ID = 0x6A6C746F  # "jlto"
#: Hints for a file that is not a database, or not a sound one.
BUILD_HINT, REBUILD_HINT = "make it with `jitlto build FAMILY -o DB`", "fetch, install or build it again"
#: Hint for a database that is a part of a build.
MERGE_HINT = "merge all parts first: jitlto merge -o DB PART..."
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
# DDL in the form in which sqlite_master lists it.
_SCHEMA_ROWS = sorted(
    (kind.lower().encode(), name.encode(), name.encode(), statement.encode())
    for statement in map(str.strip, DDL.split(";"))
    for kind, name in re.findall(r"^CREATE (\w+) (\w+)", statement)
)
_LIMITS = {
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_COLUMN: 20,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 3,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 20,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 8,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 50,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10_000,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 10,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_PRAGMAS = "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; PRAGMA mmap_size=0;"
_LARGEST = (1 << 31) - 1


class FragmentDatabase:
    """A fragment database, opened for reading.

    It returns exactly the data that was written, or raises a :class:`~jitlto.errors.DatabaseError` that names the file:
    all records are checked when it is opened, and an image's bytes when they are read. Thread-safe.

    Args:
        path: The file.

    Raises:
        DatabaseError: If the file is missing, is not a fragment database, is damaged, or was made by a newer jitlto.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._reader = reader = _SqliteReader(self.path)
        #: The absolute path, so that a later chdir has no effect.
        self.location = reader.location
        #: Identity of the file.
        self.identity = reader.identity
        try:
            self._check_header()
            families, fragments = self._rows("family", "name"), self._rows("fragment", "key")
            meta = {name.decode("utf-8", "replace"): value for name, value in reader.scan("meta", "name", "value")}
            part, gaps = meta.get("part"), meta.get("gaps")
            #: SHA-256 of the content; equal digests mean equal databases.
            self.digest = digest_of_rows(families, fragments, {n: meta[n] for n in ("part", "gaps") if n in meta})
            if meta.get("digest") != self.digest.encode():
                raise reader.damaged("its rows are not those that were written")
            self._decode(families, fragments)
            #: The part of a sharded build that it is; None if it is complete.
            self.part = None if part is None else serialization.decode_part(part)
            #: The fragments that a merge left out, because no part held them; sorted.
            self.gaps = () if gaps is None else serialization.decode_gaps(gaps)
        except BaseException as error:
            reader.close()
            if isinstance(error, serialization.InvalidRecordError | JitltoError) and not isinstance(
                error, DatabaseError
            ):
                # The checksums match, so the file was forged rather than damaged.
                raise reader.damaged(f"a record is not what schema {SCHEMA} says ({error!r:.200})") from error
            raise

    def _check_header(self) -> None:
        if self._reader.pragma("application_id") != APPLICATION_ID:
            raise self._reader.foreign()
        schema = self._reader.pragma("user_version")
        if schema != SCHEMA:
            what, hint = (
                f"has schema {schema!r}; this jitlto reads schema {SCHEMA}",
                "upgrade jitlto, or build the database again",
            )
            raise self._reader.error(what, hint, code="database-schema")
        # The schema must match exactly: a file with views, triggers, virtual tables, indexes or defaults of its own is
        # rejected before a statement could use them.
        if self._reader.schema() != _SCHEMA_ROWS:
            raise self._reader.damaged(f"its tables are not those of schema {SCHEMA}")

    def _rows(self, table: str, name: str) -> dict[str, bytes]:
        """Read the records of a table by name, and check their hashes."""
        rows = {}
        for key, record, sha in self._reader.scan(table, name, "record", "sha256"):
            if sha256(record).encode() != sha:
                raise self._reader.damaged(f"invalid row in table {table}")
            rows[key.decode("utf-8", "replace")] = record
        return rows

    def _decode(self, families: Mapping[str, bytes], fragments: Mapping[str, bytes]) -> None:
        self._families = {name: serialization.decode_family(record) for name, record in families.items()}
        self._fragments: dict[str, dict[FragmentKey, Fragment]] = {}
        for key, record in fragments.items():
            fragment = serialization.decode_fragment(record)
            if fragment.key.text != key:
                raise InvalidRecordError(f"{key} is the key of a different fragment")
            self._fragments.setdefault(fragment.key.family, {})[fragment.key] = fragment
        if any(name != family.name for name, family in self._families.items()):
            raise InvalidRecordError("a family is stored under a different name")
        for family in self._families.values():
            if missing := sorted(set(family.uses) - self._families.keys()):
                raise InvalidRecordError(f"family {family.name} uses {', '.join(missing)}, which is not in it")

    @property
    def families(self) -> Mapping[str, FamilyRecord]:
        """The families in it, by name."""
        return self._families

    def fragments(self, family: str | None = None) -> list[Fragment]:
        """Return all fragments, or those of one family, sorted by key."""
        names = sorted(self._fragments) if family is None else [family]
        return [f for name in names for _, f in sorted(self._fragments.get(name, {}).items())]

    def planned(self, family: str) -> tuple[FamilyRecord, list[Fragment]]:
        """Return what a family's kernels are made of: its record and fragments, with those of the families it uses."""
        record = self._families[family]
        fragments = [fragment for name in (family, *record.uses) for fragment in self.fragments(name)]
        return record.with_used(self._families), record.select(fragments)

    def get(self, key: FragmentKey) -> Fragment | None:
        """Return the fragment with a key, or None if there is no such fragment."""
        check_type(key, FragmentKey, "key must be a FragmentKey")
        return self._fragments.get(key.family, {}).get(key)

    def read(self, image: Image) -> bytes:
        """Return the bytes of an image.

        Raises:
            DatabaseError: If they are missing or do not match the image's SHA-256.
        """
        data = self._reader.find("blob", "sha256", image.sha256, "data")
        if data is None:
            raise self._reader.damaged(f"image {image.sha256} is missing")
        if not isinstance(data, bytes) or sha256(data) != image.sha256:
            raise self._reader.damaged(f"image {image.sha256} does not match its SHA-256")
        return data

    def verify(self) -> int:
        """Read and check everything, SQLite's own structures too.

        Returns:
            The number of images checked.

        Raises:
            DatabaseError: At the first check that fails.
        """
        verdict = self._reader.pragma("integrity_check(1)")
        if isinstance(verdict, bytes) and verdict != b"ok":
            raise self._reader.damaged(verdict.decode("utf-8", "replace"))
        stored = {row[0].decode("ascii", "replace") for row in self._reader.scan("blob", "sha256")}
        images = {image.sha256: image for fragment in self.fragments() for image in fragment.images}
        for image in images.values():
            if len(self.read(image)) != image.size:
                raise self._reader.damaged(f"image {image.sha256} is not {image.size} bytes long")
        if stored - images.keys():
            raise self._reader.damaged(f"{len(stored - images.keys())} images belong to no fragment")
        return len(images)

    def close(self) -> None:
        """Close the file; the database cannot be used afterwards."""
        self._reader.close()

    def __enter__(self) -> FragmentDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _SqliteReader:
    """A read-only connection to one file, safe to use from several threads and after a fork.

    Args:
        path: The file, as messages name it.

    Raises:
        DatabaseError: If there is no such file, or it is not an SQLite database. All methods raise it if they cannot
            read the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.location = path.absolute()
        self._lock = threading.Lock()
        if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises on a name that is too long
            raise self.error(_describe_missing(path), BUILD_HINT, code="database-not-found")
        try:
            self.identity = identity(path.stat())
        except OSError as error:  # gone since
            raise self.error(f"cannot be read: {error.strerror}", BUILD_HINT, code="database-unreadable") from error
        self._size = self.identity[2]
        with self._reading():
            self._connect()

    def _connect(self) -> None:
        # immutable: no locks and no journal beside a file that may lie in a read-only site-packages.
        uri = f"file:{quote(os.fsencode(self.location))}?mode=ro&immutable=1"
        self._process = os.getpid()
        self.connection = connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
        connection.text_factory = bytes
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)
        size = min(self._size, _LARGEST // 2)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, size + 10_000)  # no value is longer than its file
        # No statement takes more steps than the file has bytes, unless pages refer to each other cyclically. This
        # includes SQLite's own read of the schema.
        connection.set_progress_handler(lambda: True, size + 100_000)
        connection.executescript(_PRAGMAS)

    def pragma(self, name: str) -> int | bytes:
        """Return the first value of a pragma."""
        with self._reading():
            value: int | bytes = self.connection.execute(f"PRAGMA {name}").fetchone()[0]
        return value

    def schema(self) -> list[tuple[bytes, ...]]:
        """Return type, name, table and SQL of everything that the file's schema declares, sorted."""
        with self._reading():
            return sorted(self.connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))

    def scan(self, table: str, *columns: str) -> Iterator[list[bytes]]:
        """Yield some columns of all rows of a table, sorted by the first, its key; no more than the file can hold.

        A malicious file may link its pages so that a few of them yield more, or longer, rows than any machine can read.
        """
        last, remaining = b"", self._size
        # A full scan: a look-up through a damaged index could miss a row in silence.
        query = f"SELECT {', '.join(columns)} FROM {table} NOT INDEXED"  # noqa: S608 - our own names
        with self._reading():
            for row in self.connection.execute(query):
                if not all(isinstance(value, bytes) for value in row):
                    raise self.damaged(f"invalid row in table {table}")
                remaining -= sum(map(len, row))
                if row[0] <= last or remaining < 0:
                    raise self.damaged(f"the rows of table {table} are out of order, or longer than the file")
                last = row[0]
                yield row

    def find(self, table: str, key: str, value: str, column: str) -> object:
        """Return one value of the row whose ``key`` is ``value``; None if there is no such row."""
        if self._process != os.getpid():
            # A fork: SQLite's connections do not survive one, and a thread of the parent may have held the lock.
            self._lock = threading.Lock()
            with self._reading(), self._lock:
                self._connect()
        query = f"SELECT {column} FROM {table} WHERE {key} = ?"  # noqa: S608 - our own names
        with self._reading(), self._lock:
            row = self.connection.execute(query, (value,)).fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def damaged(self, why: str) -> DatabaseError:
        """Return the error for a file that is damaged."""
        return self.error(f"is damaged: {why}", REBUILD_HINT, code="database-damaged")

    def foreign(self) -> DatabaseError:
        """Return the error for a file that is not a fragment database."""
        return self.error("is not a fragment database", BUILD_HINT, code="database-foreign")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn SQLite's errors into ours."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise self.error(f"cannot be read: {error}", "open it again", code="database-unreadable") from error
        # SQLite's message may quote damaged text, which Python cannot decode; a damaged length may exceed all memory.
        except (sqlite3.Error, OverflowError, UnicodeDecodeError, MemoryError) as error:
            if str(error) == "interrupted":
                raise self.damaged("its pages refer to each other cyclically") from error
            if "unable to open" in str(error):
                what, hint = "cannot be read: permission denied", "make it readable for this user"
                raise self.error(what, hint, code="database-unreadable") from error
            if "not a database" in str(error):
                raise self.foreign() from error
            raise self.damaged(str(error)) from error

    def error(self, what: str, hint: str, *, code: str) -> DatabaseError:
        """Return an error about this file."""
        return DatabaseError(what, code=code, where=str(self.path), hint=hint)


def _describe_missing(path: Path) -> str:
    """Describe what is at a path that should be a regular file."""
    if os.path.isdir(path):  # noqa: PTH112 - here and below: Path's raise on a name that is too long
        return "is a directory"
    if os.path.islink(path) and not os.path.exists(path):  # noqa: PTH110, PTH114
        return f"is a broken link to {path.readlink()}"
    return "is not a regular file" if os.path.lexists(path) else "no such file"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_of_rows(families: Mapping[str, bytes], fragments: Mapping[str, bytes], meta: Mapping[str, bytes]) -> str:
    tables = {"family": families, "fragment": fragments, "meta": meta}
    rows = sorted((kind, name, sha256(record)) for kind, table in tables.items() for name, record in table.items())
    return sha256("\n".join(" ".join(row) for row in rows).encode())
