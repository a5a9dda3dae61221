"""The fragment database: what is read is what was written, or one clear error that names the file."""

import hashlib
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

import jitlto
from jitlto.base.errors import DatabaseError
from jitlto.base.versions import Architecture, Version
from jitlto.database import FragmentDatabase, writer
from jitlto.database import _records as records
from jitlto.record.family_record import FamilyRecord, GroupRecord, PartRecord
from jitlto.record.fragment import (
    Fragment,
    FragmentKey,
    Image,
    ImageKind,
    Parameter,
    Role,
    Symbol,
    SymbolKind,
)
from jitlto.record.options import LinkOptions
from tests.support.errors import raises

# --- A small content ---


def image(data: bytes, kind: ImageKind = ImageKind.LTOIR) -> Image:
    isa = Version(8, 8) if kind is ImageKind.PTX else None
    sha = hashlib.sha256(data).hexdigest()
    return Image(kind, Architecture(75), sha, len(data), "nvrtc", Version(12, 9), isa)


SIGNATURE = (Parameter("x", "float*", 8, 8), Parameter("s", "box", 4, 4))


def fragment(group: str, value: str, *data: bytes, role: Role = Role.DEVICE) -> Fragment:
    return Fragment(
        FragmentKey.make("f", group, {"data_type": value}),
        role,
        "kern" if role is Role.ENTRYPOINT else "",
        SIGNATURE if role is Role.ENTRYPOINT else (),
        (Symbol(f"_Z{group}{value}", SymbolKind.FUNCTION, "(4)(4)"),),
        (Symbol("table", SymbolKind.VARIABLE, "const ?@4"),),
        tuple(sorted(map(image, data))),
    )


FAMILIES = [
    FamilyRecord(
        "f",
        ("--std=c++17",),
        LinkOptions(fast_math=True, ptxas=("-v",)),
        (Architecture(75), Architecture(90, "a")),
        (
            GroupRecord("op", Role.DEVICE, ("data_type",), "op.cuh", False),
            GroupRecord("u", Role.DEVICE, (), "u.h", True),
            GroupRecord("v", Role.DEVICE, (), None, False),
        ),
        (("op.cuh", "#pragma once\n"),),
        interfaces=("op.cuh", "u.h"),
    )
]
BLOBS = {
    hashlib.sha256(data).hexdigest(): data
    for data in (b"one" * 200, b"two", bytes(n * n % 251 for n in range(9000)), b"three" * 50)
}
DATA = list(BLOBS.values())
FRAGMENTS = [
    fragment("kern", "float", DATA[0], DATA[1], role=Role.ENTRYPOINT),
    fragment("op", "float", DATA[2]),
    fragment("op", "double", DATA[3]),
]
Content = tuple[dict[str, FamilyRecord], list[Fragment], list[bytes]]


def content(path: Path, *, verify: bool = False) -> Content:
    with FragmentDatabase(path) as opened:
        if verify:
            opened.verify()
        images = [opened.read(i) for f in opened.fragments() for i in f.images]
        return dict(opened.families), opened.fragments(), images


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.fragdb"
    writer.write(path, FAMILIES, FRAGMENTS, BLOBS)
    return path


@pytest.fixture
def copy(small: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(small, tmp_path / "copy.fragdb"))


# --- What is written is read ---


def test_what_is_written_is_read(small: Path) -> None:
    families, fragments, images = content(small, verify=True)
    assert families == {"f": FAMILIES[0]}
    assert fragments == sorted(FRAGMENTS, key=lambda f: f.key)
    assert images == [BLOBS[i.sha256] for f in fragments for i in f.images]


def test_look_ups(small: Path) -> None:
    with FragmentDatabase(small) as opened:
        assert opened.fragments() == opened.fragments("f") == sorted(FRAGMENTS, key=lambda f: f.key)
        assert not opened.fragments("g")
        assert opened.get(FRAGMENTS[1].key) == FRAGMENTS[1]
        assert opened.get(FragmentKey.make("f", "op", {"data_type": "int"})) is None
        assert opened.get(FragmentKey.make("g", "op", {})) is None
        assert opened.fragments("f") == opened.fragments()
        assert opened.fragments("g") == []
        assert opened.families["f"].interfaces == ("op.cuh", "u.h")
        assert opened.families["f"].group("op") == FAMILIES[0].groups[0]
        assert opened.families["f"].group("none") is None
        assert opened.verify() == 4


def test_another_content_has_another_digest(small: Path, tmp_path: Path) -> None:
    with FragmentDatabase(small) as opened:
        digest = opened.digest
    assert writer.write(tmp_path / "a", FAMILIES, FRAGMENTS[1:], BLOBS) != digest
    assert writer.write(tmp_path / "b", [], FRAGMENTS, BLOBS) != digest
    changed = [fragment("op", "float", DATA[0]), *FRAGMENTS[2:], FRAGMENTS[0]]
    assert writer.write(tmp_path / "c", FAMILIES, changed, BLOBS) != digest


# --- Parts of a whole ---


PART = PartRecord(
    2,
    3,
    "ab" * 32,
    4,
    (("f", "nvrtc 12.9"),),
    (("f", "_Z2opf"),),
    ("the matrix is odd: «é»",),
)


def change_meta(path: Path, statement: str) -> None:
    """Run a statement on the table ``meta`` without its rules, as a hand would."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript("ALTER TABLE meta RENAME TO old; CREATE TABLE meta(name, value)")
        connection.execute("INSERT INTO meta SELECT * FROM old")
        connection.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM meta WHERE name = '{}'",
        "UPDATE meta SET value = replace(value, 'nvrtc', 'nvcc') WHERE name = '{}'",
        "UPDATE meta SET value = NULL WHERE name = '{}'",
        "UPDATE meta SET value = 7 WHERE name = '{}'",
        "UPDATE meta SET name = 'whole' WHERE name = '{}'",
    ],
)
def test_a_changed_part_is_noticed_where_it_is_read(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "part"
    writer.write(path, FAMILIES, FRAGMENTS, BLOBS, part=PART)
    with FragmentDatabase(path) as opened:
        assert opened.part == PART
    change_meta(path, statement.format("part"))
    with raises(DatabaseError, "database-damaged") as caught, FragmentDatabase(path) as opened:
        _ = opened.part
    assert caught.value.where == str(path)


# --- Files and paths ---


def test_a_read_only_file_in_a_read_only_directory(copy: Path) -> None:
    before = content(copy)
    copy.chmod(0o444)
    copy.parent.chmod(0o555)
    try:
        assert content(copy, verify=True) == before
        assert [path.name for path in copy.parent.iterdir()] == [copy.name]
    finally:
        copy.parent.chmod(0o755)


@pytest.mark.parametrize("target", ["no/such/directory/x.fragdb", "directory"])
def test_what_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path, target: str) -> None:
    (tmp_path / "directory").mkdir()
    with raises(DatabaseError, "database-unwritable") as caught:
        writer.write(tmp_path / target, FAMILIES, FRAGMENTS, BLOBS)
    assert caught.value.where == str(tmp_path / target)
    assert [path.name for path in tmp_path.iterdir()] == ["directory"]


def test_the_file_holds_no_time_and_no_path(small: Path, tmp_path: Path) -> None:
    writer.write(tmp_path / "elsewhere", FAMILIES, FRAGMENTS, BLOBS)
    data = small.read_bytes()
    assert (tmp_path / "elsewhere").read_bytes() == data
    assert str(small.parent).encode() not in data


def test_other_programs_can_read_it(small: Path) -> None:
    with closing(sqlite3.connect(small)) as connection:
        assert connection.execute("SELECT count(*) FROM provides").fetchone() == (3,)
        assert connection.execute("SELECT symbol, layout FROM requires").fetchall() == [("table", "const ?@4")] * 3
        rows = connection.execute("SELECT architecture, sha256, size FROM image").fetchall()
        assert {(arch, sha, size) for arch, sha, size in rows} == {("75", sha, len(d)) for sha, d in BLOBS.items()}


def test_threads_read_at_the_same_time(small: Path) -> None:
    with FragmentDatabase(small) as opened, ThreadPoolExecutor(8) as pool:
        images = [i for f in opened.fragments() for i in f.images] * 100
        assert list(pool.map(opened.read, images)) == [BLOBS[i.sha256] for i in images]
        # Where scans share a statement of SQLite, rows are lost, and the file is called damaged.
        assert {*pool.map(lambda _: opened.verify(), range(40))} == {opened.verify()}


def test_a_closed_database_says_so(small: Path) -> None:
    opened = FragmentDatabase(small)
    opened.close()
    opened.close()
    for action in (opened.verify, lambda: opened.read(FRAGMENTS[0].images[0])):
        with raises(DatabaseError, "database-unreadable"):
            action()


# --- What is no fragment database ---


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE fragment(key, record, sha256)")


def newer(path: Path) -> None:
    writer.write(path, FAMILIES, FRAGMENTS, BLOBS)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("make", "case"),
    [
        (lambda path: None, "not-found"),
        (lambda path: path.mkdir(), "not-found"),
        (lambda path: path.write_bytes(b""), "foreign"),
        (lambda path: path.write_text("text\n" * 1000), "foreign"),
        (lambda path: path.write_bytes(bytes(8192)), "foreign"),
        (foreign, "foreign"),
        (newer, "schema"),
    ],
    ids=["missing", "directory", "empty", "text", "zeros", "foreign", "newer"],
)
def test_what_is_no_fragment_database(tmp_path: Path, make: Callable[[Path], None], case: str) -> None:
    path = tmp_path / "x.fragdb"
    make(path)
    with raises(DatabaseError, f"database-{case}") as caught:
        FragmentDatabase(path)
    assert caught.value.where == str(path)
    assert caught.value.hint


@pytest.mark.parametrize("address", ["s3://kernels/prod#sha256=6f1c", "file:///mnt/store"])
def test_the_address_of_a_store_is_no_path(address: str) -> None:
    with raises(DatabaseError, "database-not-found", hint="jitlto pull"):
        jitlto.load("mini", address)


@pytest.mark.parametrize("schema", [2, 3])
def test_a_database_of_an_earlier_jitlto_is_one_clear_error(schema: int) -> None:
    path = Path(__file__).parent / "earlier" / f"schema{schema}.fragdb"
    with raises(DatabaseError, "database-schema", f"schema {schema}", hint="build the database again") as caught:
        FragmentDatabase(path)
    assert caught.value.where == str(path)


def test_databases_with_cubins_and_without_have_one_schema(mini_path: Path, sass_path: Path) -> None:
    for path in (mini_path, sass_path):
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (4,)
        with FragmentDatabase(path) as opened:
            assert opened.verify() == len({i.sha256 for f in opened.fragments() for i in f.images})


# --- Damage ---


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM fragment WHERE key LIKE '%double%'",
        "DELETE FROM family",
        "DELETE FROM meta",
        "UPDATE fragment SET record = (SELECT min(f.record) FROM fragment AS f)",
        "UPDATE fragment SET record = '{}'",
        "UPDATE fragment SET sha256 = zeroblob(32)",
        "UPDATE family SET key = 'g'",
        "UPDATE meta SET value = replace(value, '\"schema\":4', '\"schema\":5') WHERE name = 'root'",
        "DROP TABLE fragment",
    ],
)
def test_changed_rows_are_noticed_where_they_are_read(copy: Path, statement: str) -> None:
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute(statement)
    with raises(DatabaseError, "database-damaged") as caught:
        content(copy)
    assert caught.value.where == str(copy)


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("INSERT INTO symbol VALUES ('x', '{}', x'00')", "checksum"),
        ("DELETE FROM symbol", "rows of table symbol"),
        ("DELETE FROM entrypoint", "rows of table entrypoint"),
    ],
)
def test_rows_that_no_look_up_reads_are_found_by_verifying(copy: Path, statement: str, what: str) -> None:
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute(statement)
    assert content(copy)[1] == sorted(FRAGMENTS, key=lambda f: f.key)
    with FragmentDatabase(copy) as opened, raises(DatabaseError, "database-damaged", what):
        opened.verify()


@pytest.mark.parametrize(
    ("statement", "noticed_by_reading"),
    [
        ("DELETE FROM blob WHERE length(data) > 5000", True),
        ("UPDATE blob SET data = x'00' WHERE length(data) > 5000", True),
        ("UPDATE blob SET data = 'text'", True),
        ("INSERT INTO blob VALUES ('00', x'00')", False),
    ],
)
def test_changed_images_are_noticed(copy: Path, statement: str, noticed_by_reading: bool) -> None:
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute(statement)
    with FragmentDatabase(copy) as opened:
        with raises(DatabaseError, "database-damaged"):
            opened.verify()
        if noticed_by_reading:
            with raises(DatabaseError, "database-damaged", FRAGMENTS[1].images[0].sha256):
                opened.read(FRAGMENTS[1].images[0])


def test_an_image_of_another_size_than_recorded_is_noticed(tmp_path: Path) -> None:
    wrong = Image(ImageKind.LTOIR, Architecture(75), image(DATA[1]).sha256, 99, "nvrtc", Version(12, 9))
    liar = Fragment(FragmentKey("f", "g"), Role.DEVICE, "", (), (), (), (wrong,))
    writer.write(tmp_path / "a", FAMILIES, [liar], {wrong.sha256: DATA[1]})
    with (
        FragmentDatabase(tmp_path / "a") as opened,
        raises(DatabaseError, "database-damaged", wrong.sha256, "99 bytes"),
    ):
        opened.verify()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_reads_by_itself_though_a_thread_was_reading(mini_path: Path) -> None:
    with FragmentDatabase(mini_path) as database:
        image = next(iter(database.fragments()[0].images_of(ImageKind.LTOIR)))
        data = database.read(image)
        with database._reader._lock:  # as a thread of the parent holds it
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # a child that hangs is killed
                os._exit(0 if database.read(image) == data else 1)
            _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert database.read(image) == data


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_says_that_a_database_was_replaced_and_never_mixes_two(copy: Path, tmp_path: Path) -> None:
    writer.write(tmp_path / "other", FAMILIES, [], {})
    with FragmentDatabase(copy) as database:
        (tmp_path / "other").replace(copy)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                for read in (database.fragments, database.verify):
                    with raises(DatabaseError, "database-replaced"):
                        read()
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert database.fragments()  # of the file that was opened


def test_versions_are_read_as_written_and_hold_no_control_characters() -> None:
    family = replace(FAMILIES[0], version="2.1", differs="a reason")
    record = records.encode(family)
    assert records.decode_family(record) == family
    for damaged in (record.replace(b"2.1", b"\\u001b[2J"), record.replace(b"a reason", b"\\n")):
        with pytest.raises(ValueError):
            records.decode_family(damaged)
