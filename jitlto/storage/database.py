"""The fragment database: one SQLite file, written once by the build side, read by the run side.

Format (schema 1; ``docs/database.md`` describes it for readers in other languages)::

    meta(name, value)             digest: SHA-256 over the sorted (kind, name, sha256) of all other rows
                                  part: JSON, a PartRecord; only in the part that one shard built
                                  gaps: JSON, the keys of fragments that a merge left out; only if it left any out
    family(name, record, sha256)  record: JSON, a FamilyRecord: the part of family.toml that the run side needs
    fragment(key, record, sha256) record: JSON, a Fragment
    blob(sha256, data)            the bytes of images, by content

Times, paths and machine names stay outside, so that the same inputs give the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

from jitlto.errors import DatabaseError, JitltoError
from jitlto.model.family_record import FamilyRecord, PartRecord
from jitlto.model.fragment import Fragment, FragmentKey, Image
from jitlto.storage import files, serialization
from jitlto.storage.serialization import InvalidRecordError
from jitlto.storage.sqlite_reader import BUILD_HINT, REBUILD_HINT, SqliteReader

__all__ = [
    "BUILD_HINT",
    "MERGE_HINT",
    "REBUILD_HINT",
    "SCHEMA",
    "FragmentDatabase",
    "check_writable",
    "is_database",
    "write",
]

SCHEMA = 1
_APPLICATION_ID = 0x6A6C746F  # "jlto"
#: Hint for a database that is a part of a build.
MERGE_HINT = "merge all parts first: jitlto merge -o DB PART..."
_DDL = """
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
# _DDL in the form in which sqlite_master lists it.
_SCHEMA_ROWS = sorted(
    (kind.lower().encode(), name.encode(), name.encode(), statement.encode())
    for statement in map(str.strip, _DDL.split(";"))
    for kind, name in re.findall(r"^CREATE (\w+) (\w+)", statement)
)


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
        self._reader = reader = SqliteReader(self.path)
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
            self.digest = _digest(families, fragments, {n: meta[n] for n in ("part", "gaps") if n in meta})
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
        if self._reader.pragma("application_id") != _APPLICATION_ID:
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
            if _sha(record).encode() != sha:
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

    @property
    def families(self) -> Mapping[str, FamilyRecord]:
        """The families in it, by name."""
        return self._families

    def fragments(self, family: str | None = None) -> list[Fragment]:
        """Return all fragments, or those of one family, sorted by key."""
        names = sorted(self._fragments) if family is None else [family]
        return [f for name in names for _, f in sorted(self._fragments.get(name, {}).items())]

    def get(self, key: FragmentKey) -> Fragment | None:
        """Return the fragment with a key, or None if there is no such fragment."""
        return self._fragments.get(key.family, {}).get(key)

    def read(self, image: Image) -> bytes:
        """Return the bytes of an image.

        Raises:
            DatabaseError: If they are missing or do not match the image's SHA-256.
        """
        data = self._reader.find("blob", "sha256", image.sha256, "data")
        if data is None:
            raise self._reader.damaged(f"image {image.sha256} is missing")
        if not isinstance(data, bytes) or _sha(data) != image.sha256:
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


def write(
    path: str | os.PathLike[str],
    families: Iterable[FamilyRecord],
    fragments: Iterable[Fragment],
    blobs: Mapping[str, bytes],
    *,
    part: PartRecord | None = None,
    gaps: Iterable[FragmentKey] = (),
) -> str:
    """Write a database, whole or not at all; an existing one is replaced.

    Args:
        path: The file.
        blobs: The bytes of every image, by SHA-256 in hexadecimal.
        part: The part of a sharded build that it is; None if it is complete.
        gaps: Keys of the fragments that a merge left out.

    Returns:
        The digest: equal digests mean equal databases.

    Raises:
        DatabaseError: If the file cannot be written.
    """
    path = Path(path)
    check_writable(path)
    family_rows = {family.name: serialization.encode_family(family) for family in families}
    fragment_rows = {str(fragment.key): serialization.encode_fragment(fragment) for fragment in fragments}
    meta = {} if part is None else {"part": serialization.encode_part(part)}
    if left_out := sorted(gaps):
        meta["gaps"] = serialization.encode_gaps(left_out)
    digest = _digest(family_rows, fragment_rows, meta)
    try:
        with files.replacing(path) as temporary:
            temporary.touch(exist_ok=False)
            rows_of_meta = {"digest": digest.encode()} | meta
            _fill(temporary, rows_of_meta, {"family": family_rows, "fragment": fragment_rows}, blobs)
    except (sqlite3.Error, OSError) as error:
        raise _unwritable(path, getattr(error, "strerror", None) or str(error)) from error
    return digest


def _fill(
    path: Path, meta: Mapping[str, bytes], tables: Mapping[str, Mapping[str, bytes]], blobs: Mapping[str, bytes]
) -> None:
    """Write the tables into an empty file: the same bytes for the same rows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(
            f"PRAGMA page_size=4096; PRAGMA journal_mode=OFF; PRAGMA application_id={_APPLICATION_ID};"
            f"PRAGMA user_version={SCHEMA}; BEGIN; {_DDL}"
        )
        connection.executemany("INSERT INTO meta VALUES (?, ?)", [(name, meta[name].decode()) for name in meta])
        for table, rows in tables.items():
            values = ((key, rows[key].decode(), _sha(rows[key])) for key in sorted(rows))
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", values)  # noqa: S608
        connection.executemany("INSERT INTO blob VALUES (?, ?)", sorted(blobs.items()))
        connection.execute("COMMIT")
    with path.open("r+b") as file:
        # Header fields 24 and 92 count writes (SQLite file format, 1.3), so they do not depend on the content alone.
        for offset in (24, 92):
            file.seek(offset)
            file.write((1).to_bytes(4, "big"))
        file.flush()
        os.fsync(file.fileno())


def check_writable(path: Path) -> None:
    """Check that a database may be written to ``path``, before the work of building it starts.

    Raises:
        DatabaseError: If another kind of file is there, or its directory is not writable.
    """
    if path.exists() and not path.is_file():
        raise _unwritable(path, "it exists and is not a regular file")
    if path.is_file() and path.stat().st_size and not is_database(path):
        what, hint = "exists and is not a fragment database: not overwritten", "give another name with -o"
        raise DatabaseError(what, code="database-overwrite", where=str(path), hint=hint)
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK | os.X_OK):
        raise _unwritable(path, "permission denied")


def _unwritable(path: Path, why: str) -> DatabaseError:
    what, hint = f"cannot be written: {why}", "give a path in a directory that exists and that you may write"
    return DatabaseError(what, code="database-unwritable", where=str(path), hint=hint)


def is_database(path: Path) -> bool:
    """Return whether a file, even a damaged one, has our application id (SQLite file format, 1.3: offset 68).

    Raises:
        OSError: If it cannot be read.
    """
    with path.open("rb") as file:
        header = file.read(72)
    return header[:16] == b"SQLite format 3\0" and header[68:72] == _APPLICATION_ID.to_bytes(4, "big")


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest(families: Mapping[str, bytes], fragments: Mapping[str, bytes], meta: Mapping[str, bytes]) -> str:
    tables = {"family": families, "fragment": fragments, "meta": meta}
    rows = sorted((kind, name, _sha(record)) for kind, table in tables.items() for name, record in table.items())
    return _sha("\n".join(" ".join(row) for row in rows).encode())
