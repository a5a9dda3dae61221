"""Writes a fragment database, whole or not at all; the format is that of ``jitlto.storage.database``."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

from jitlto.errors import DatabaseError
from jitlto.model.family_record import FamilyRecord, PartRecord
from jitlto.model.fragment import Fragment, FragmentKey
from jitlto.storage import files, serialization
from jitlto.storage.database import APPLICATION_ID, DDL, SCHEMA, digest_of_rows, sha256


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
    digest = digest_of_rows(family_rows, fragment_rows, meta)
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
            f"PRAGMA page_size=4096; PRAGMA journal_mode=OFF; PRAGMA application_id={APPLICATION_ID};"
            f"PRAGMA user_version={SCHEMA}; BEGIN; {DDL}"
        )
        connection.executemany("INSERT INTO meta VALUES (?, ?)", [(name, meta[name].decode()) for name in meta])
        for table, rows in tables.items():
            values = ((key, rows[key].decode(), sha256(rows[key])) for key in sorted(rows))
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", values)  # noqa: S608
        connection.executemany("INSERT INTO blob VALUES (?, ?)", sorted(blobs.items()))
        connection.execute("COMMIT")
    with path.open("r+b") as file:
        # Header fields 24 and 92 count writes (SQLite file format, 1.3), so they do not depend on the content alone.
        for offset in (24, 92):
            file.seek(offset)
            file.write((1).to_bytes(4, "big"))


def check_writable(path: Path) -> None:
    """Check that a database may be written to ``path``, before the work of building it starts.

    Raises:
        DatabaseError: If another kind of file is there, or its directory is not writable.
    """
    try:
        target, mode = files.check_replaceable(path)
        is_other = mode is not None and target.stat().st_size > 0 and not files.is_database(target)
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from error
    if is_other:
        what, hint = "exists and is not a fragment database: not overwritten", "give another name with -o"
        raise DatabaseError(what, code="database-overwrite", where=str(path), hint=hint)


def _unwritable(path: Path, why: str) -> DatabaseError:
    what, hint = f"cannot be written: {why}", "give a path in a directory that exists and that you may write"
    return DatabaseError(what, code="database-unwritable", where=str(path), hint=hint)
