"""The digest read in passing: what the database would say, or nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from jitlto.database import FragmentDatabase
from jitlto.peek import digest_of

from .conftest import BuildFamily
from .families import MINI


def test_it_is_the_digest_of_the_whole_content(mini_path: Path, shipped_path: Path, build_family: BuildFamily) -> None:
    changed = build_family(
        MINI | {"op.cu.jinja": MINI["op.cu.jinja"].replace("{{expr}}", "3.0f * ({{expr}})")}, "other"
    )
    digests = set()
    for path in (mini_path, shipped_path, changed.path):
        with FragmentDatabase(path) as database:
            assert digest_of(path) == database.digest
            digests.add(database.digest)
    assert len(digests) == 3


def edited(path: Path, *statements: str) -> Path:
    connection = sqlite3.connect(path)
    connection.isolation_level = None
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return path


@pytest.mark.parametrize(
    "statements",
    [
        ("UPDATE meta SET value = replace(value, substr(value, 1, 1), 'f') WHERE name = 'digest'",),
        ("UPDATE meta SET name = 'digests'", "INSERT INTO meta VALUES ('digest', printf('%064d', 0))"),
        ("DELETE FROM meta", "INSERT INTO meta VALUES ('digest', printf('%064d', 0))"),
        ("PRAGMA page_size = 8192", "VACUUM"),
        ("PRAGMA page_size = 1024", "VACUUM"),
        ("DROP TABLE meta", "CREATE TABLE meta(name TEXT, value TEXT)", "INSERT INTO meta VALUES ('digest', 'x')"),
        ("PRAGMA application_id = 7",),
        ("DELETE FROM meta",),
    ],
)
def test_of_an_edited_file_it_says_what_is_written_there_or_nothing(
    mini_path: Path, tmp_path: Path, statements: tuple[str, ...]
) -> None:
    path = tmp_path / "edited.fragdb"
    shutil.copy(mini_path, path)
    edited(path, *statements)
    rows = dict(sqlite3.connect(path).execute("SELECT name, value FROM meta").fetchall())
    assert digest_of(path) in (None, rows.get("digest"))


def test_what_is_no_database_has_none(mini_path: Path, tmp_path: Path) -> None:
    whole = mini_path.read_bytes()
    for number, data in enumerate([b"", b"x", whole[:100], whole[:5000], whole[:8192], whole[:-1], whole + b"x", b"x" + whole[1:], bytes(8192)]):
        path = tmp_path / str(number)
        path.write_bytes(data)
        assert digest_of(path) is None
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "missing", "."):
        assert digest_of(tmp_path / name) is None
