"""The fragment database: one SQLite file, written once by the build side, read by the run side.

Format (schema 1; ``docs/database.md`` describes it for readers in other languages)::

    meta(name, value)             digest: SHA-256 over the sorted (kind, name, sha256) of all other rows
                                  part: JSON, a PartRecord; only in one shard's share of a build
                                  gaps: JSON, the keys of fragments that a merge left out; only where it did
    family(name, record, sha256)  record: JSON, what the run side must know of a family.toml
    fragment(key, record, sha256) record: JSON, a Fragment
    blob(sha256, data)            the bytes of images, by content

Times, paths and machine names stay outside, so that the same inputs give the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from jitlto.errors import DatabaseError, JitltoError
from jitlto.model.family_record import FamilyRecord, PartRecord
from jitlto.model.fragment import Fragment, FragmentKey, Image
from jitlto.storage import files, serialization
from jitlto.storage.files import identity

__all__ = ["SCHEMA", "FragmentDatabase", "check_writable", "is_database", "write"]

SCHEMA = 1
_APPLICATION_ID = 0x6A6C746F  # "jlto"
#: What to do about a file that is no database, or none any more.
MAKE, AGAIN = "make it with `jitlto build FAMILY -o DB`", "fetch, install or build it again"
#: What to do about one that is a part of a build.
MERGE = "merge all parts first: jitlto merge -o DB PART..."
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
# What a file's own list of tables and views says, then.
_CONTENT = sorted(
    (kind.lower().encode(), name.encode(), name.encode(), statement.encode())
    for statement in map(str.strip, _DDL.split(";"))
    for kind, name in re.findall(r"^CREATE (\w+) (\w+)", statement)
)
# What SQLite takes from a file before it is seen what the file holds. Source: SQLite's «Defense Against The Dark Arts».
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

    What it returns is what was written, or a :class:`~jitlto.errors.DatabaseError` that names the file: all records
    are checked when it is opened, and an image's bytes when they are read. Safe to use from several threads.

    Parameters
    ----------
    path : str or Path
        The file.

    Raises
    ------
    DatabaseError
        If the file is missing, is no fragment database, is damaged, or was made by a newer jitlto.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        #: The same, wherever the process goes.
        self.location = self.path.absolute()
        self._lock = threading.Lock()
        if not os.path.isfile(self.path):  # noqa: PTH113 - Path.is_file raises on a name that is too long
            raise self._error(*_no_file(self.path))
        try:
            #: Which file it is.
            self.identity = identity(self.path.stat())
        except OSError as error:  # gone since
            raise self._error(f"cannot be read: {error.strerror}", MAKE) from error
        # immutable: no locks and no journal beside a file that may lie in a read-only site-packages.
        self._uri = f"file:{quote(os.fsencode(self.location))}?mode=ro&immutable=1"
        with self._reading():
            self._connect()
            try:
                self._check_header()
                families = self._rows("family", "name")
                fragments = self._rows("fragment", "key")
                meta = {name: value for name, value in self._scan("meta", "name", "value")}  # noqa: C416
                recorded, part, gaps = (meta.get(name) for name in (b"digest", b"part", b"gaps"))
                rows = [("family", name, sha) for name, (_, sha) in families.items()]
                rows += [("fragment", key, sha) for key, (_, sha) in fragments.items()]
                rows += [("meta", name, _sha(row)) for name, row in (("part", part), ("gaps", gaps)) if row is not None]
                self.digest = _digest(rows)
                if recorded != self.digest.encode():
                    raise self._damaged("its rows are not those that were written")
            except BaseException:
                self._connection.close()
                raise
        self._fragments: dict[str, dict[FragmentKey, Fragment]] = {}
        try:
            self._families = {name: serialization.decode_family(record) for name, (record, _) in families.items()}
            for key, (record, _) in fragments.items():
                fragment = serialization.decode_fragment(record)
                if str(fragment.key) != key:
                    raise ValueError(f"{key} is the name of another")
                self._fragments.setdefault(fragment.key.family, {})[fragment.key] = fragment
            if any(name != family.name for name, family in self._families.items()):
                raise ValueError("a family stands under another's name")
            #: Which part of a whole it is; None if it is complete.
            self.part = None if part is None else serialization.decode_part(part)
            #: The fragments that belong to the whole and that a merge has left out, for no part held them; sorted.
            self.gaps = () if gaps is None else serialization.decode_gaps(gaps)
        # A hand-made file, whose checksums are right and whose records are not ours.
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, JitltoError) as error:
            self._connection.close()
            raise self._damaged(f"a record is not what schema {SCHEMA} says ({error!r:.200})") from error

    def _connect(self) -> None:
        self._process = os.getpid()
        self._connection = connection = sqlite3.connect(self._uri, uri=True, check_same_thread=False)
        connection.text_factory = bytes
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)
        size = min(self.identity[2], _LARGEST // 2)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, size + 10_000)  # no value is longer than its file
        # Nor does any of our statements take more steps than the file has bytes, unless pages refer to each other in a
        # circle. SQLite's own reading of the list of tables is such a statement.
        connection.set_progress_handler(lambda: True, size + 100_000)
        connection.executescript(_PRAGMAS)

    @property
    def families(self) -> Mapping[str, FamilyRecord]:
        """The families in it, by name."""
        return self._families

    def fragments(self, family: str | None = None) -> list[Fragment]:
        """All fragments, or those of one family, sorted by key."""
        names = sorted(self._fragments) if family is None else [family]
        return [f for name in names for _, f in sorted(self._fragments.get(name, {}).items())]

    def get(self, key: FragmentKey) -> Fragment | None:
        """The fragment of that key, None if there is none."""
        return self._fragments.get(key.family, {}).get(key)

    def read(self, image: Image) -> bytes:
        """The bytes of an image.

        Raises
        ------
        DatabaseError
            If they are missing or are not the bytes that were written.
        """
        if self._process != os.getpid():
            # A fork: SQLite's connections do not survive one, and a thread of the parent may have held the lock.
            self._lock = threading.Lock()
            with self._reading(), self._lock:
                self._connect()
        with self._reading(), self._lock:
            row = self._connection.execute("SELECT data FROM blob WHERE sha256 = ?", (image.sha256,)).fetchone()
        if row is None:
            raise self._damaged(f"image {image.sha256} is missing")
        data = row[0]
        if not isinstance(data, bytes) or _sha(data) != image.sha256:
            raise self._damaged(f"image {image.sha256} has other bytes")
        return data

    def verify(self) -> int:
        """Read and check everything, SQLite's own structures too.

        Returns
        -------
        int
            The number of images checked.

        Raises
        ------
        DatabaseError
            At the first thing that does not hold.
        """
        with self._reading():
            verdict = self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if verdict != b"ok":
                raise self._damaged(verdict.decode("utf-8", "replace"))
            stored = {row[0].decode("ascii", "replace") for row in self._scan("blob", "sha256")}
        images = {image.sha256: image for fragment in self.fragments() for image in fragment.images}
        for image in images.values():
            if len(self.read(image)) != image.size:
                raise self._damaged(f"image {image.sha256} is not {image.size} bytes long")
        if stored - images.keys():
            raise self._damaged(f"{len(stored - images.keys())} images belong to no fragment")
        return len(images)

    def close(self) -> None:
        """Close the file; the database can be used no longer."""
        self._connection.close()

    def __enter__(self) -> FragmentDatabase:
        """Use as a context manager: closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_header(self) -> None:
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (schema,) = self._connection.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION_ID:
            raise self._error("is not a fragment database", MAKE)
        if schema != SCHEMA:
            raise self._error(
                f"has schema {schema}; this jitlto reads schema {SCHEMA}", "upgrade jitlto, or build the database again"
            )
        # No view, trigger, virtual table, index or default of its own: SQLite runs nothing for which these would count.
        if sorted(self._connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")) != _CONTENT:
            raise self._damaged(f"its tables are not those of schema {SCHEMA}")

    def _rows(self, table: str, name: str) -> dict[str, tuple[bytes, str]]:
        rows = {}
        for key, record, sha in self._scan(table, name, "record", "sha256"):
            if _sha(record).encode() != sha:
                raise self._damaged(f"a row of table {table} does not check")
            rows[key.decode("utf-8", "replace")] = (record, sha.decode())
        return rows

    def _scan(self, table: str, *columns: str) -> Iterator[list[bytes]]:
        """All rows of a table, sorted by the first of some columns, its key; no more than the file can hold.

        Pages may refer to each other so that few of them make more rows, or longer ones, than any machine can read.
        """
        last, left = b"", self.identity[2]
        # A full scan: a look-up through a damaged index could miss a row in silence.
        query = f"SELECT {', '.join(columns)} FROM {table} NOT INDEXED"  # noqa: S608 - our own names
        for row in self._connection.execute(query):
            if not all(isinstance(value, bytes) for value in row):
                raise self._damaged(f"a row of table {table} does not check")
            left -= sum(map(len, row))
            if row[0] <= last or left < 0:
                raise self._damaged(f"the rows of table {table} are not in order, or longer than the file")
            last = row[0]
            yield row

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise self._error(f"cannot be read: {error}", "open it again") from error
        # SQLite's message may quote damaged text, which Python cannot decode; a damaged length may ask for the moon.
        except (sqlite3.Error, OverflowError, UnicodeDecodeError, MemoryError) as error:
            if str(error) == "interrupted":
                raise self._damaged("its pages refer to each other in a circle") from error
            if "unable to open" in str(error):
                raise self._error("cannot be read: permission denied", "read it as a user who may") from error
            if "not a database" in str(error):
                raise self._error("is not a fragment database", MAKE) from error
            raise self._damaged(str(error)) from error

    def _damaged(self, why: str) -> DatabaseError:
        return self._error(f"is damaged: {why}", AGAIN)

    def _error(self, what: str, hint: str) -> DatabaseError:
        return DatabaseError(what, where=str(self.path), hint=hint)


def write(
    path: str | os.PathLike[str],
    families: Iterable[FamilyRecord],
    fragments: Iterable[Fragment],
    blobs: Mapping[str, bytes],
    *,
    part: PartRecord | None = None,
    gaps: Iterable[FragmentKey] = (),
) -> str:
    """Write a database, whole or not at all; an existing file is replaced.

    Parameters
    ----------
    path : str or Path
        The file.
    families : iterable of FamilyRecord
    fragments : iterable of Fragment
    blobs : mapping of str to bytes
        The bytes of every image, by SHA-256 in hexadecimal.
    part : PartRecord, optional
        Which part of a whole it is, where it is not complete.
    gaps : iterable of FragmentKey, optional
        What a merge has left out.

    Returns
    -------
    str
        The digest: what «the same database» means.

    Raises
    ------
    DatabaseError
        If the file cannot be written.
    """
    path = Path(path)
    check_writable(path)
    family_rows = {family.name: serialization.encode_family(family) for family in families}
    fragment_rows = {str(fragment.key): serialization.encode_fragment(fragment) for fragment in fragments}
    meta = {} if part is None else {"part": serialization.encode_part(part)}
    if left_out := sorted(gaps):
        meta["gaps"] = serialization.encode_gaps(left_out)
    digest = _digest(
        [("family", name, _sha(record)) for name, record in family_rows.items()]
        + [("fragment", key, _sha(record)) for key, record in fragment_rows.items()]
        + [("meta", name, _sha(value)) for name, value in meta.items()]
    )
    try:
        with files.replacing(path) as temporary:
            try:
                temporary.touch(exist_ok=False)
            except OSError as error:
                raise DatabaseError(
                    f"cannot be written: {error.strerror}",
                    where=str(path),
                    hint="give a path in a directory that exists and that you may write",
                ) from error
            rows_of_meta = {"digest": digest.encode()} | meta
            _fill(temporary, rows_of_meta, {"family": family_rows, "fragment": fragment_rows}, blobs)
    except (sqlite3.Error, OSError) as error:
        raise DatabaseError(f"cannot be written: {error}", where=str(path)) from error
    return digest


def _fill(
    path: Path,
    meta: Mapping[str, bytes],
    tables: Mapping[str, Mapping[str, bytes]],
    blobs: Mapping[str, bytes],
) -> None:
    """Write the tables into an empty file: the same bytes for the same rows."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
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
        # Header fields 24 and 92 count writes (SQLite file format, 1.3): they say nothing of the content.
        for offset in (24, 92):
            file.seek(offset)
            file.write((1).to_bytes(4, "big"))
        file.flush()
        os.fsync(file.fileno())


def check_writable(path: Path) -> None:
    """Check that a database may be written to ``path``, before the work that goes into it.

    Raises
    ------
    DatabaseError
        If something else lies there, or its directory takes no files.
    """
    if path.exists() and not path.is_file():
        raise DatabaseError(
            "cannot be written: it exists and is no regular file", where=str(path), hint="give another name with -o"
        )
    if path.is_file() and path.stat().st_size and not is_database(path):
        raise DatabaseError(
            "exists and is no fragment database: it is not replaced", where=str(path), hint="give another name with -o"
        )
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK | os.X_OK):
        raise DatabaseError(
            "cannot be written: permission denied",
            where=str(path),
            hint="give a path in a directory that exists and that you may write",
        )


def _no_file(path: Path) -> tuple[str, str]:
    """What stands there in the place of a file, and what to do about it."""
    if os.path.isdir(path):  # noqa: PTH112 - here and below: Path's raise on a name that is too long
        return "is a directory", MAKE
    if os.path.islink(path) and not os.path.exists(path):  # noqa: PTH110, PTH114
        return f"is a link to {path.readlink()}, which leads to no file", "make the link anew, or name the file"
    return "is no regular file" if os.path.lexists(path) else "there is no such file", MAKE


def is_database(path: Path) -> bool:
    """Whether a file carries our application id (SQLite file format, 1.3: offset 68), whatever its state.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    with path.open("rb") as file:
        header = file.read(72)
    return header[:16] == b"SQLite format 3\0" and header[68:72] == _APPLICATION_ID.to_bytes(4, "big")


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest(rows: Iterable[tuple[str, str, str]]) -> str:
    return _sha("\n".join(" ".join(row) for row in sorted(rows)).encode())
