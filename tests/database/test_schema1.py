"""Databases of schema 1, which jitlto 0.1 wrote: they are read as before, and a merge makes them new."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from jitlto.base.errors import DatabaseError
from jitlto.base.files import digest_of
from jitlto.build.merge import merge_databases
from jitlto.database import APPLICATION_ID, FragmentDatabase, writer
from jitlto.database import _serialization as serialization
from jitlto.database._part_record import encode_part
from jitlto.database._schema1 import DDL
from jitlto.record.family_record import FamilyRecord, PartRecord
from jitlto.record.fragment import Fragment, FragmentKey, Role
from jitlto.record.options import LinkOptions
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises
from tests.support.process import output_of


def write_old(source: Path, path: Path, change: Callable[[bytes], bytes] = bytes) -> str:
    """Write a database as jitlto 0.1 did; ``change`` is applied to each record."""
    with FragmentDatabase(source) as opened, closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(
            f"PRAGMA page_size=4096; PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version=1; {DDL}"
        )
        rows = [("family", name, serialization.encode_family(record)) for name, record in opened.families.items()]
        rows += [("fragment", f.key.text, serialization.encode_fragment(f)) for f in opened.fragments()]
        listed = []
        for table, name, written in rows:
            record = change(written)
            sha = hashlib.sha256(record).hexdigest()
            connection.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", (name, record.decode(), sha))  # noqa: S608
            listed.append((table, name, sha))
        if opened.part:
            part = encode_part(opened.part)
            connection.execute("INSERT INTO meta VALUES ('part', ?)", (part.decode(),))
            listed.append(("meta", "part", hashlib.sha256(part).hexdigest()))
        digest = hashlib.sha256("\n".join(map(" ".join, sorted(listed))).encode()).hexdigest()
        connection.execute("INSERT INTO meta VALUES ('digest', ?)", (digest,))
        images = {i.sha256: opened.read(i) for f in opened.fragments() for i in f.images}
        connection.executemany("INSERT INTO blob VALUES (?, ?)", images.items())
    return digest


@pytest.fixture(scope="module")
def old(mini_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("old") / "mini.fragdb"
    write_old(mini_path, path)
    return path


def test_it_holds_and_plans_the_same_under_its_own_digest(mini_path: Path, old: Path) -> None:
    with FragmentDatabase(mini_path) as new, FragmentDatabase(old) as opened:
        assert opened.fragments() == new.fragments()
        assert dict(opened.families) == dict(new.families)
        assert opened.verify() == new.verify()
        assert opened.digest == digest_of(old) != new.digest
        plans = [KernelFamily("mini", each) for each in (new, opened)]
        expected, found = ([f.plan(arch="sm_90", **c).digest for c in f.configurations()] for f in plans)
        assert found == expected


@pytest.mark.slow
def test_a_large_one_is_planned_from_where_no_file_can_be_written(tmp_path: Path) -> None:
    fragments = [
        Fragment(FragmentKey.make("f", "k", {"a": str(n), "b": "x" * 2000}), Role.ENTRYPOINT, "kernel", (), (), (), ())
        for n in range(1000)
    ]
    writer.write(tmp_path / "new", [FamilyRecord("f", (), LinkOptions(), (), (), ())], fragments, {})
    write_old(tmp_path / "new", tmp_path / "old")
    code = """
import resource, sys
from jitlto.database import FragmentDatabase
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
print(len(FragmentDatabase(sys.argv[1]).index("f")[1].find_entries("k", {"a": "7"})))
"""
    assert output_of(code, tmp_path / "old") == "1\n"


def test_merging_it_writes_what_a_build_writes_now(mini_path: Path, old: Path, tmp_path: Path) -> None:
    merge_databases([old], tmp_path / "new.fragdb")
    assert (tmp_path / "new.fragdb").read_bytes() == mini_path.read_bytes()


def test_symbols_without_the_field_weak_are_those_that_must_not_meet(mini_path: Path, tmp_path: Path) -> None:
    write_old(mini_path, tmp_path / "old", lambda record: record.replace(b',"weak":false', b""))
    with FragmentDatabase(mini_path) as new, FragmentDatabase(tmp_path / "old") as opened:
        assert opened.fragments() == new.fragments()


def test_a_part_is_a_part(mini_path: Path, tmp_path: Path) -> None:
    part = PartRecord(1, 2, "ab" * 32, (), (), (), ("advice",))
    with FragmentDatabase(mini_path) as new:
        images = {i.sha256: new.read(i) for f in new.fragments() for i in f.images}
        writer.write(tmp_path / "part", new.families.values(), new.fragments(), images, part=part)
    write_old(tmp_path / "part", tmp_path / "old")
    with FragmentDatabase(tmp_path / "old") as opened:
        assert opened.part == part


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM fragment",
        "UPDATE fragment SET record = replace(record, 'float', 'doubl')",
        "UPDATE fragment SET key = replace(key, 'float', 'half')",
        "UPDATE meta SET value = 'x'",
        "INSERT INTO meta VALUES ('part', '{}')",
        "DROP TABLE fragment",
        "CREATE TABLE more(x)",
    ],
)
def test_changed_rows_are_noticed_at_opening(old: Path, tmp_path: Path, statement: str) -> None:
    path = Path(shutil.copy(old, tmp_path / "mini.fragdb"))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)
    with raises(DatabaseError, "database-damaged") as caught:
        FragmentDatabase(path)
    assert caught.value.where == str(path)


@pytest.mark.parametrize("field", ["key", "images", "name", "groups"])
def test_a_forged_record_is_refused(mini_path: Path, tmp_path: Path, field: str) -> None:
    def change(record: bytes) -> bytes:
        values = json.loads(record)
        return json.dumps(values | {field: None} if field in values else values).encode()

    write_old(mini_path, tmp_path / "old", change)
    with raises(DatabaseError, "database-damaged", "schema"):
        FragmentDatabase(tmp_path / "old")
