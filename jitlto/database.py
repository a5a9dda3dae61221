"""The fragment database: one SQLite file, written once by the build side, read by the run side.

Format (schema 1; ``docs/database.md`` describes it for readers in other languages)::

    meta(name, value)             digest: SHA-256 over the sorted (kind, name, sha256) of all other rows
                                  part: JSON, a PartRecord; only in one shard's share of a build
    family(name, record, sha256)  record: JSON, what the run side must know of a family.toml
    fragment(key, record, sha256) record: JSON, a Fragment
    blob(sha256, data)            the bytes of images, by content

Times, paths and machine names stay outside, so that the same inputs give the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jitlto.errors import DatabaseError, JitltoError
from jitlto.files import identity
from jitlto.fragment import Fragment, FragmentKey, Image, ImageKind, Role, Symbol, SymbolKind
from jitlto.link_options import LinkOptions
from jitlto.parameter import Parameter
from jitlto.versions import Architecture, Version

SCHEMA = 1
_APPLICATION_ID = 0x6A6C746F  # "jlto"
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


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """What the run side knows of a group: its name, role, key parameters and interface header.

    ``supplied`` says that callers supply its definition at run time.
    """

    name: str
    role: Role
    key: tuple[str, ...]
    interface: str | None
    supplied: bool


@dataclass(frozen=True, slots=True)
class FamilyRecord:
    """What the run side knows of a family.

    Parameters
    ----------
    name : str
        The family's name.
    options : tuple of str
        Compiler options, for a user's own source.
    link : LinkOptions
        Options of every link.
    architectures : tuple of Architecture
        What its LTO-IR was made for, sorted.
    groups : tuple of GroupRecord
        Sorted by name.
    headers : tuple of (str, str)
        Name and text of the family's own headers that its interfaces include, sorted.
    """

    name: str
    options: tuple[str, ...]
    link: LinkOptions
    architectures: tuple[Architecture, ...]
    groups: tuple[GroupRecord, ...]
    headers: tuple[tuple[str, str], ...]

    @property
    def interfaces(self) -> tuple[str, ...]:
        """The interface headers, sorted."""
        return tuple(sorted({group.interface for group in self.groups if group.interface}))

    def group(self, name: str) -> GroupRecord | None:
        """The group called ``name``, if there is one."""
        return next((group for group in self.groups if group.name == name), None)


@dataclass(frozen=True, slots=True)
class PartRecord:
    """What makes a database one part of a sharded build, and what merging must know that no fragment records.

    Parameters
    ----------
    number, count : int
        It is part ``number`` of ``count``, counted from 1.
    whole : str
        SHA-256 of all that is built, by content: only parts with the same one belong together.
    keys : tuple of FragmentKey
        Every fragment of the whole, sorted.
    toolchains : tuple of (str, str)
        Each family's name and the :attr:`~jitlto.build.toolchain.Toolchain.identity` of its compiler, sorted.
    includes : tuple of (FragmentKey, tuple of str)
        The family's interface headers that each fragment's source can reach, by normalised name; sorted, without the
        fragments that reach none.
    advice : tuple of str
        What the build advises on the families' matrices.
    """

    number: int
    count: int
    whole: str
    keys: tuple[FragmentKey, ...]
    toolchains: tuple[tuple[str, str], ...]
    includes: tuple[tuple[FragmentKey, tuple[str, ...]], ...]
    advice: tuple[str, ...]

    def __str__(self) -> str:
        return f"part {self.number} of {self.count}"


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
            what = "is a directory" if os.path.isdir(self.path) else "there is no such file"  # noqa: PTH112
            what = "is no regular file" if os.path.lexists(self.path) and what.startswith("there") else what
            raise self._error(what, "make it with `jitlto build FAMILY -o DB`")
        try:
            #: Which file it is.
            self.identity = identity(self.path.stat())
        except OSError as error:  # gone since
            raise self._error(
                f"cannot be read: {error.strerror}", "make it with `jitlto build FAMILY -o DB`"
            ) from error
        # immutable: no locks and no journal beside a file that may lie in a read-only site-packages.
        self._uri = f"file:{quote(os.fsencode(self.location))}?mode=ro&immutable=1"
        with self._reading():
            self._connect()
            try:
                self._check_header()
                families = self._rows("family", "name")
                fragments = self._rows("fragment", "key")
                meta = dict(self._connection.execute("SELECT name, value FROM meta NOT INDEXED").fetchall())
                recorded, part = meta.get(b"digest"), meta.get(b"part")
                if not isinstance(part, bytes | None):
                    raise self._damaged("a row of table meta does not check")
                rows = [("family", name, sha) for name, (_, sha) in families.items()]
                rows += [("fragment", key, sha) for key, (_, sha) in fragments.items()]
                rows += [] if part is None else [("meta", "part", _sha(part))]
                self.digest = _digest(rows)
                if recorded != self.digest.encode():
                    raise self._damaged("its rows are not those that were written")
            except BaseException:
                self._connection.close()
                raise
        self._fragments: dict[str, dict[FragmentKey, Fragment]] = {}
        try:
            self._families = {name: _family_from(json.loads(record)) for name, (record, _) in families.items()}
            for record, _ in fragments.values():
                fragment = _fragment_from(json.loads(record))
                self._fragments.setdefault(fragment.key.family, {})[fragment.key] = fragment
            #: Which part of a whole it is; None if it is complete.
            self.part = None if part is None else _part_from(json.loads(part))
        # A hand-made file, whose checksums are right and whose records are not ours.
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, JitltoError) as error:
            raise self._damaged(f"a record is not what schema {SCHEMA} says ({error!r})") from error

    def _connect(self) -> None:
        self._process = os.getpid()
        self._connection = sqlite3.connect(self._uri, uri=True, check_same_thread=False)
        self._connection.text_factory = bytes

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
            stored = {
                str(row[0], "ascii", "replace") if isinstance(row[0], bytes) else ""
                for row in self._connection.execute("SELECT sha256 FROM blob")
            }
        if verdict != b"ok":
            raise self._damaged(verdict.decode("utf-8", "replace"))
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
            raise self._error("is not a fragment database", "make it with `jitlto build FAMILY -o DB`")
        if schema != SCHEMA:
            raise self._error(
                f"has schema {schema}; this jitlto reads schema {SCHEMA}", "upgrade jitlto, or build the database again"
            )

    def _rows(self, table: str, name: str) -> dict[str, tuple[bytes, str]]:
        rows = {}
        # A full scan: a look-up through a damaged index could miss a row in silence.
        query = f"SELECT {name}, record, sha256 FROM {table} NOT INDEXED"  # noqa: S608 - our own names
        for row in self._connection.execute(query):
            if not all(isinstance(value, bytes) for value in row) or _sha(row[1]).encode() != row[2]:
                raise self._damaged(f"a row of table {table} does not check")
            key, record, sha = row
            rows[key.decode("utf-8", "replace")] = (record, sha.decode())
        return rows

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise self._error(f"cannot be read: {error}", "open it again") from error
        # SQLite's message may quote damaged text, which Python cannot decode; a damaged length may ask for the moon.
        except (sqlite3.Error, OverflowError, UnicodeDecodeError, MemoryError) as error:
            if "not a database" in str(error):
                raise self._error("is not a fragment database", "make it with `jitlto build FAMILY -o DB`") from error
            raise self._damaged(str(error)) from error

    def _damaged(self, why: str) -> DatabaseError:
        return self._error(f"is damaged: {why}", "fetch, install or build it again")

    def _error(self, what: str, hint: str) -> DatabaseError:
        return DatabaseError(what, where=str(self.path), hint=hint)


def write(
    path: str | os.PathLike[str],
    families: Iterable[FamilyRecord],
    fragments: Iterable[Fragment],
    blobs: Mapping[str, bytes],
    *,
    part: PartRecord | None = None,
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
    family_rows = {family.name: _canonical(asdict(family) | {"link": family.link.as_dict()}) for family in families}
    fragment_rows = {str(fragment.key): _canonical(_fragment_to(fragment)) for fragment in fragments}
    meta = {} if part is None else {"part": _canonical(_part_to(part))}
    digest = _digest(
        [("family", name, _sha(record)) for name, record in family_rows.items()]
        + [("fragment", key, _sha(record)) for key, record in fragment_rows.items()]
        + [("meta", name, _sha(value)) for name, value in meta.items()]
    )
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent or ".", prefix=".jitlto-", suffix=".tmp")
    except OSError as error:
        raise DatabaseError(
            f"cannot be written: {error.strerror}",
            where=str(path),
            hint="give a path in a directory that exists and that you may write",
        ) from error
    os.close(descriptor)
    temporary = Path(name)
    try:
        with contextlib.closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.executescript(
                f"PRAGMA page_size=4096; PRAGMA journal_mode=OFF; PRAGMA application_id={_APPLICATION_ID};"
                f"PRAGMA user_version={SCHEMA}; BEGIN; {_DDL}"
            )
            rows_of_meta = [("digest", digest), *((name, value.decode()) for name, value in meta.items())]
            connection.executemany("INSERT INTO meta VALUES (?, ?)", rows_of_meta)
            for table, rows in (("family", family_rows), ("fragment", fragment_rows)):
                values = ((key, rows[key].decode(), _sha(rows[key])) for key in sorted(rows))
                connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", values)  # noqa: S608
            connection.executemany("INSERT INTO blob VALUES (?, ?)", sorted(blobs.items()))
            connection.execute("COMMIT")
        with temporary.open("r+b") as file:
            # Header fields 24 and 92 count writes (SQLite file format, 1.3): they say nothing of the content.
            for offset in (24, 92):
                file.seek(offset)
                file.write((1).to_bytes(4, "big"))
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except (sqlite3.Error, OSError) as error:
        raise DatabaseError(f"cannot be written: {error}", where=str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    return digest


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
    if path.is_file() and path.stat().st_size and not _is_database(path):
        raise DatabaseError(
            "exists and is no fragment database: it is not replaced", where=str(path), hint="give another name with -o"
        )
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK | os.X_OK):
        raise DatabaseError(
            "cannot be written: permission denied",
            where=str(path),
            hint="give a path in a directory that exists and that you may write",
        )


def _is_database(path: Path) -> bool:
    """Whether a file carries our application id (SQLite file format, 1.3: offset 68), whatever its state."""
    with path.open("rb") as file:
        header = file.read(72)
    return header[:16] == b"SQLite format 3\0" and header[68:72] == _APPLICATION_ID.to_bytes(4, "big")


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest(rows: Iterable[tuple[str, str, str]]) -> str:
    return _sha("\n".join(" ".join(row) for row in sorted(rows)).encode())


def _canonical(record: Mapping[str, object]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()


def _fragment_to(fragment: Fragment) -> dict[str, object]:
    images = [asdict(i) | {"architecture": str(i.architecture)} for i in fragment.images]
    key = {
        "family": fragment.key.family,
        "group": fragment.key.group,
        "parameters": dict(fragment.key.parameters),
    }
    signature = [parameter.as_dict() for parameter in fragment.signature]
    return asdict(fragment) | {"key": key, "images": images, "signature": signature}


def _part_to(part: PartRecord) -> dict[str, object]:
    includes = {str(key): headers for key, headers in part.includes}
    return asdict(part) | {"keys": list(map(str, part.keys)), "toolchains": dict(part.toolchains), "includes": includes}


# The readers take records that a checksum has vouched for, so a missing field is a slip in this module.
def _fragment_from(r: dict[str, Any]) -> Fragment:
    return Fragment(
        FragmentKey.make(r["key"]["family"], r["key"]["group"], r["key"]["parameters"]),
        Role(r["role"]),
        r["entry"],
        tuple(Parameter(**p) for p in r["signature"]),
        tuple(_symbol_from(s) for s in r["provides"]),
        tuple(_symbol_from(s) for s in r["requires"]),
        tuple((name, body) for name, body in r["weak"]),
        tuple(_image_from(i) for i in r["images"]),
    )


def _symbol_from(r: dict[str, Any]) -> Symbol:
    return Symbol(r["name"], SymbolKind(r["kind"]), r["layout"], r["weak"])


def _image_from(r: dict[str, Any]) -> Image:
    isa = Version(*r["ptx_isa"]) if r["ptx_isa"] else None
    kind, architecture = ImageKind(r["kind"]), Architecture.parse(r["architecture"])
    return Image(kind, architecture, r["sha256"], r["size"], r["toolchain"], Version(*r["version"]), isa)


def _part_from(r: dict[str, Any]) -> PartRecord:
    return PartRecord(
        r["number"],
        r["count"],
        r["whole"],
        tuple(sorted(map(FragmentKey.parse, r["keys"]))),
        tuple(sorted(r["toolchains"].items())),
        tuple(sorted((FragmentKey.parse(key), tuple(headers)) for key, headers in r["includes"].items())),
        tuple(r["advice"]),
    )


def _family_from(r: dict[str, Any]) -> FamilyRecord:
    groups = (
        GroupRecord(g["name"], Role(g["role"]), tuple(g["key"]), g["interface"], g["supplied"]) for g in r["groups"]
    )
    return FamilyRecord(
        r["name"],
        tuple(r["options"]),
        LinkOptions.of(r["link"]),
        tuple(Architecture(*a) for a in r["architectures"]),
        tuple(groups),
        tuple((name, text) for name, text in r["headers"]),
    )
