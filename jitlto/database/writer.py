"""Writing a fragment database, whole or not at all; the format is that of ``jitlto.database``."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path

from jitlto.base import files
from jitlto.base.errors import DatabaseError
from jitlto.database import _records as records
from jitlto.database._records import Root
from jitlto.database._rows import DDL, SCHEMA, TABLES, Row, checksum, digest_rows, make_rows, sha256
from jitlto.record.family_record import FamilyRecord, PartRecord
from jitlto.record.fragment import Fragment

#: Larger ones would be mostly empty: each table has one, and so has the end of each image.
_PAGE = 1024
_HINT = "give a path in a directory that exists and that you may write"


def write(
    path: str | os.PathLike[str],
    families: Iterable[FamilyRecord],
    fragments: Iterable[Fragment],
    blobs: Mapping[str, bytes],
    *,
    part: PartRecord | None = None,
    check: Callable[[Path, str], object] | None = None,
) -> str:
    """Write a database, or a part of one, whole or not at all, and return its digest; an existing one is replaced.

    Args:
        blobs: The bytes of every image, by SHA-256 in hexadecimal; each is looked up once, when it is written.
        check: Called with the new file and the digest before the file takes its place; what it raises leaves an
            existing one as it is.

    Raises:
        DatabaseError: If the file cannot be written.
    """
    path = Path(path)
    check_writable(path)
    meta = {} if part is None else {"part": records.encode(part)}
    try:
        with files.replacing(path) as temporary:
            temporary.touch(exist_ok=False)
            digest = _fill(temporary, meta, make_rows(families, fragments), blobs)
            if check is not None:
                check(temporary, digest)
        return digest
    except (sqlite3.Error, OSError) as error:
        raise files.unwritable(error, path, _HINT, DatabaseError, "database-unwritable") from error


def _fill(path: Path, meta: Mapping[str, bytes], rows: Iterable[Row], blobs: Mapping[str, bytes]) -> str:
    """Write the tables into an empty file, the same bytes for the same rows, which are sorted; return the digest."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(
            f"PRAGMA page_size={_PAGE}; PRAGMA journal_mode=OFF;"
            f"PRAGMA application_id={int.from_bytes(files.APPLICATION_ID)}; PRAGMA user_version={SCHEMA}; BEGIN; {DDL}"
        )
        checksums: dict[str, list[bytes]] = {table: [] for table in TABLES}
        for table, key, record in rows:
            checksums[table].append(checksum(table, key.encode(), record))
            row = (key, record.decode(), checksums[table][-1])
            connection.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", row)  # noqa: S608 - our own names
        part = sha256(meta["part"]) if meta else None
        root = records.encode(Root(SCHEMA, {table: digest_rows(each) for table, each in checksums.items()}, part))
        digest = sha256(root)
        for name, value in {"digest": digest.encode(), "root": root, **meta}.items():
            connection.execute("INSERT INTO meta VALUES (?, ?)", (name, value.decode()))
        connection.executemany("INSERT INTO blob VALUES (?, ?)", ((sha, blobs[sha]) for sha in sorted(blobs)))
        connection.execute("COMMIT")
    with path.open("r+b") as file:
        # Header fields 24 and 92 count writes (SQLite file format, 1.3), so they do not depend on the content alone.
        for offset in (24, 92):
            file.seek(offset)
            file.write((1).to_bytes(4, "big"))
    return digest


def check_writable(path: Path) -> None:
    """Check that a database may be written to ``path``, before the work of building it starts.

    Raises:
        DatabaseError: If another kind of file is there, or its directory is not writable.
    """
    try:
        target, mode = files.check_replaceable(path)
        is_other = mode is not None and target.stat().st_size > 0 and not files.is_database(target)
    except OSError as error:
        raise files.unwritable(error, path, _HINT, DatabaseError, "database-unwritable") from error
    if is_other:
        what, hint = "exists and is not a fragment database: not overwritten", "give another name with -o"
        raise DatabaseError(what, code="database-overwrite", where=str(path), hint=hint)
