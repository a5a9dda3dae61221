"""What a database can do to a process that opens it: hand-made files, whose checksums are right."""

import contextlib
import shutil
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jitlto.base.errors import DatabaseError, JitltoError
from jitlto.database import FragmentDatabase
from jitlto.database._rows import TABLES, checksum
from jitlto.database.index import Index
from jitlto.plan.resolve import Resolution, resolve
from jitlto.record.fragment import Role, agrees
from jitlto.record.options import LinkOptions
from jitlto.runtime.family import KernelFamily
from jitlto.source.load import load
from tests.support.errors import raises
from tests.support.fuzz_targets import changed, rows, with_rows
from tests.support.index import WholeIndex
from tests.support.process import environment, output_of

PAGE = 1024


@pytest.fixture
def copy(mini_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(mini_path, tmp_path / "mini.fragdb"))


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def read(path: Path) -> None:
    """Read all families and fragments, without the checks of ``verify``."""
    with FragmentDatabase(path) as database:
        dict(database.families)
        database.fragments()


def opened_by_strace(path: Path, *more: str) -> list[str]:
    """Return the files that a process opens with a database, according to strace."""
    program = "import sys\nfrom jitlto.database import FragmentDatabase\nprint('begin', flush=True)\n" + "\n".join(more)
    log = path.with_name("strace.txt")
    command = ["strace", "-f", "-e", "trace=%file,write", "-o", str(log), sys.executable, "-c", program, str(path)]
    variables = environment(PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(command, check=False, env=variables, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"strace does not work here: {done.stderr[-200:]}")
    lines = log.read_text("utf-8", "replace").splitlines()
    begin = next(n for n, line in enumerate(lines) if '"begin' in line)
    return [line for line in lines[begin + 1 :] if "write(" not in line and "exit" not in line]


# --- what SQLite would do for a schema of the file's own ---


VIEW = "CREATE VIEW symbol(key, record, sha256) AS SELECT '', {}, ''"
ENDLESS = """CREATE VIEW symbol AS WITH RECURSIVE r(key, record) AS
    (SELECT 0, 'a' UNION ALL SELECT key + 1, record || 'a' FROM r) SELECT key, record, '' AS sha256 FROM r"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE VIEW more AS SELECT load_extension('evil.so')",),
        ("CREATE TRIGGER t AFTER INSERT ON meta BEGIN SELECT load_extension('evil.so'); END",),
        ("CREATE INDEX i ON symbol(record)",),
        ("DROP TABLE symbol", VIEW.format("load_extension('evil.so')")),
        ("DROP TABLE symbol", ENDLESS),
        ("ALTER TABLE symbol ADD COLUMN more DEFAULT 'x'",),
        ("DROP VIEW image",),
        ("ANALYZE",),
    ],
)  # fmt: skip
def test_a_foreign_schema_is_rejected(copy: Path, statements: tuple[str, ...]) -> None:
    edit(copy, *statements)
    with raises(DatabaseError, "database-damaged", "tables", "schema 4"):
        FragmentDatabase(copy)


def test_the_connection_attaches_nothing_loads_nothing_and_writes_nothing(copy: Path, tmp_path: Path) -> None:
    with FragmentDatabase(copy) as database:
        for statement, why in [
            (f"ATTACH '{tmp_path / 'other.db'}' AS other", "too many attached"),
            ("SELECT load_extension('evil.so')", "not authorized|no such function"),
            (f"VACUUM INTO '{tmp_path / 'other.db'}'", "too many attached"),
            ("DELETE FROM meta", "readonly"),
        ]:
            with pytest.raises(sqlite3.Error, match=why):
                database._reader.connection.execute(statement).fetchall()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mini.fragdb"]


# --- paths ---


@pytest.mark.slow
def test_no_file_but_the_database_is_opened(copy: Path) -> None:
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    touched = opened_by_strace(copy, "database = FragmentDatabase(sys.argv[1])", "database.verify()")
    opened = [line for line in touched if "open" in line.partition("(")[0] and "ENOENT" not in line]
    assert opened
    assert all(f'"{copy}"' in line and "O_RDONLY" in line for line in opened), opened


@pytest.mark.parametrize("suffix", ["-wal", "-journal", "-shm"])
def test_a_journal_beside_it_is_not_played_back(copy: Path, suffix: str) -> None:
    whole = copy.read_bytes()
    if suffix == "-wal":
        data = bytearray(whole)
        data[18:20] = b"\2\2"  # says that it has a write-ahead log
        copy.write_bytes(data)
        connection = sqlite3.connect(copy, isolation_level=None)
        connection.execute("DELETE FROM meta")
        log = copy.with_name(copy.name + suffix).read_bytes()
        connection.close()
        copy.write_bytes(data)
        copy.with_name(copy.name + suffix).write_bytes(log)
    else:
        connection = sqlite3.connect(copy, isolation_level=None)
        connection.execute("PRAGMA journal_mode=PERSIST")
        connection.execute("DELETE FROM meta")
        connection.close()
        copy.write_bytes(whole)
        if suffix == "-shm":
            copy.with_name(copy.name + suffix).write_bytes(bytes(32768))
    before = {path: path.read_bytes() for path in copy.parent.iterdir()}
    with FragmentDatabase(copy) as database:
        assert database.verify()
    assert {path: path.read_bytes() for path in copy.parent.iterdir()} == before


@pytest.mark.parametrize("name", ["a?mode=rwc", "a?immutable=0&vfs=unix-none", "a#b", "a%00b", "a%2e%2e", "file:a"])
def test_a_name_is_a_name_and_no_parameter(mini_path: Path, tmp_path: Path, name: str) -> None:
    with raises(DatabaseError, "database-not-found"):
        FragmentDatabase(tmp_path / name)
    shutil.copy(mini_path, tmp_path / name)
    with FragmentDatabase(tmp_path / name) as database:
        assert database.verify()
    assert [path.name for path in tmp_path.iterdir()] == [name]


# --- what is declared and is not there ---


def grown(path: Path, table: str, page: Callable[[int, int], bytes]) -> None:
    """Add a page that becomes a table's root; ``page`` is given the numbers of the old root and its own."""
    connection = sqlite3.connect(path, isolation_level=None)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    connection.execute("PRAGMA writable_schema=ON")
    number = path.stat().st_size // PAGE + 1
    connection.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (number, table))
    connection.close()
    data = bytearray(path.read_bytes())
    data += page(root, number)
    data[28:32] = (len(data) // PAGE).to_bytes(4, "big")
    path.write_bytes(data)


def interior(children: list[int], cells: list[bytes]) -> bytes:
    """An interior page of an index b-tree (SQLite file format, 1.6)."""
    page, offsets, end = bytearray(PAGE), [], PAGE
    for child, cell in zip(children, cells, strict=False):
        content = child.to_bytes(4, "big") + cell
        end -= len(content)
        page[end : end + len(content)] = content
        offsets.append(end)
    page[:12] = struct.pack(">BHHHBI", 2, 0, len(offsets), end, 0, children[-1])
    page[12 : 12 + 2 * len(offsets)] = b"".join(offset.to_bytes(2, "big") for offset in offsets)
    return bytes(page)


def row(*texts: str) -> bytes:
    """A cell's payload size and payload: a record of short texts (SQLite file format, 2.1)."""
    values = [text.encode() for text in texts]
    head = bytes([1 + len(values), *(13 + 2 * len(value) for value in values)])
    payload = head + b"".join(values)
    return bytes([len(payload)]) + payload


@pytest.mark.slow
@pytest.mark.parametrize("table", ["meta", "symbol", "fragment"])
def test_pages_that_repeat_each_other_do_not_make_endless_rows(copy: Path, table: str) -> None:
    cells = [row(f"{n:03}", "", "") for n in range(50)]
    for _ in range(14):  # 50 ** 14 rows, one page each step
        grown(copy, table, lambda root, _: interior([root] * 51, cells))
    begin = time.monotonic()
    with raises(DatabaseError, "database-damaged"), FragmentDatabase(copy) as database:
        database.verify()
    assert time.monotonic() - begin < 10


def in_little_memory(path: Path, megabytes: int) -> str:
    """What opening and verifying a database ends with, in a process that may have so much more memory."""
    program = f"""
import resource, sys
from jitlto.database import FragmentDatabase
from jitlto.base.errors import DatabaseError
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + ({megabytes} << 20),) * 2)
try:
    with FragmentDatabase(sys.argv[1]) as database:
        database.verify()
        print("sound")
except DatabaseError as error:
    print(error.what)
"""
    return output_of(program, path)


@pytest.mark.slow
def test_lengths_that_a_file_declares_are_not_believed(copy: Path) -> None:
    whole = copy.read_bytes()
    with FragmentDatabase(copy) as database:
        digest = database.digest
    # Varints before a record say how long its cell and its values are (SQLite file format, 1.6 and 2.1).
    at = whole.index(b'{"bodies"')
    for size in (b"\x87\xff\xff\xff\x7f", b"\x83\xff\xff\xff\x7f", b"\x81\x80\x80\x80\x00"):
        for begin in range(at - 80, at):
            copy.write_bytes(whole[:begin] + size + whole[begin + len(size) :])
            try:
                with FragmentDatabase(copy) as database:
                    assert database.digest == digest
            except DatabaseError:
                pass
    copy.write_bytes(whole)
    assert in_little_memory(copy, 32) == "sound\n"


@pytest.mark.slow
def test_a_file_of_many_gigabytes_that_hold_nothing_needs_no_memory(copy: Path) -> None:
    pages = (8 << 30) // PAGE
    with copy.open("r+b") as file:
        file.truncate(pages * PAGE)
        for at, value in ((28, pages), (48, 0x7FFFFFFE)):  # its size, and the pages to keep in memory
            file.seek(at)
            file.write(value.to_bytes(4, "big"))
    assert in_little_memory(copy, 32).startswith(("sound", "is damaged"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, '{"name":' + "9" * 10_000 + "}", "NaN", "1e999", "[]"]
)
def test_json_of_any_depth_is_an_error(copy: Path, text: str) -> None:
    with_rows(copy, [["family", "mini", text]])
    with raises(DatabaseError, "database-damaged", "record", "schema"):
        read(copy)


# --- index rows ---


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False), st.booleans())
def test_index_rows_that_lie_lead_to_no_fragment_that_does_not_fit(
    mini_path: Path, tmp_path: Path, chance: Random, exchanged: bool
) -> None:
    path = Path(shutil.copy(mini_path, tmp_path / "lies.fragdb"))
    content = rows(path)
    one, other = chance.sample([row for row in content if row[0] not in ("family", "fragment")], 2)
    if exchanged:
        one[2], other[2] = other[2], one[2]
    else:
        one[2] = changed(one[2], chance)
    with_rows(path, content)
    with FragmentDatabase(path) as database:
        whole = WholeIndex(database.fragments())
        known = {fragment.key: fragment for fragment in database.fragments()}
        for configuration in ({}, {"data_type": "float"}, {"data_type": "float", "op_name": "twice"}):
            expected = answer(lambda: whole, configuration)
            found = answer(lambda: database.index("mini"), configuration)
            if found != expected:
                with raises(DatabaseError, "database-damaged"):
                    database.verify()
            if isinstance(found, Resolution):
                assert found.entry.role is Role.ENTRYPOINT
                assert all(known[f.key] == f and agrees(f.key.parameters, configuration) for f in found.fragments)
                provided = [symbol.name for fragment in found.device for symbol in fragment.provides]
                assert provided == [symbol.name for symbol in found.entry.requires]


def answer(index: Callable[[], Index], configuration: dict[str, str]) -> Resolution | tuple[str, ...]:
    """The fragments of a configuration, or the error."""
    try:
        return resolve(index(), configuration)
    except JitltoError as error:
        return (error.code, error.what)


def forged(table: str, change: str, content: list[list[Any]]) -> None:
    row = next(row for row in content if row[0] == table)
    match change:
        case "remove":
            content.remove(row)
        case "rename":
            row[1] = f"{row[1]}x"
        case "repeat":
            content.append([table, f"{row[1]}x", row[2]])
        case "empty":
            row[2] = type(row[2])()


def test_values_that_no_fragment_has_are_not_taken_from_a_file_with_the_digest_of_another(copy: Path) -> None:
    edit(copy, "UPDATE shape SET record = replace(record, 'twice', 'third')")
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        ((key, record),) = connection.execute("SELECT key, record FROM shape")
        right = checksum("shape", key.encode(), record.encode())
        connection.execute("UPDATE shape SET sha256 = ?", (right,))
    with raises(DatabaseError, "database-damaged"):
        load("mini", copy)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "change"),
    # Without its family's record, a database is another one.
    sorted(set(product(TABLES, ["remove", "rename", "repeat", "empty"])) - {("family", "remove")}),
)
def test_a_forged_row_is_found_by_verifying_and_never_crashes_a_plan(copy: Path, table: str, change: str) -> None:
    content = rows(copy)
    forged(table, change, content)
    with_rows(copy, content)
    with raises(DatabaseError, "database-damaged"), FragmentDatabase(copy) as database:
        database.verify()
    try:
        load("mini", copy).plan(arch="sm_90", data_type="float")
    except JitltoError as error:
        assert str(copy) in str(error) or error.code.startswith("plan-")


# --- records ---


def replaced(path: Path, table: str, change: Callable[[Any], None]) -> None:
    content = rows(path)
    change(next(row[2] for row in content if row[0] == table))
    with_rows(path, content)


def test_a_record_under_a_different_name_is_rejected(copy: Path) -> None:
    content = rows(copy)
    for one in content:
        if one[0] == "fragment":
            one[1] = one[1].replace("float", "half")
    with_rows(copy, content)
    with raises(DatabaseError, "database-damaged", "key of a different fragment"):
        read(copy)


@pytest.mark.slow
@pytest.mark.parametrize(
    "option",
    ["-I/etc", "-I.", "--include-path=.", "-include=x.h", "--pre-include=x.h", "--create-pch=x.pch",
     "-create-pch=x.pch", "-use-pch=x", "-pch-dir=.", "-pch", "--pch", "--pch\0x", "-time=x.csv",
     "--fdevice-time-trace=x.json",
     '-DX="/etc/passwd"', "-DX=</etc/passwd>", "-Xptxas=--options-file=x", "--ptxas-options=-optf=x", "x.cu", "",
     "-Xcudafe=--preinclude=/etc/passwd", "-Xcudafe=--list=/tmp/x", "-Xcudafe", "-Xnvvm=-info-output-file=/tmp/x",
     "-Xcudafe=--diag_suppress=1,--list=x", "--create_pch=x"],
)  # fmt: skip
def test_a_compiler_option_that_names_a_file_is_refused(copy: Path, option: str) -> None:
    replaced(copy, "family", lambda record: record["options"].append(option))
    with raises(DatabaseError, "database-damaged", "option"):
        read(copy)


@pytest.mark.slow
@pytest.mark.parametrize(
    "option",
    ["--options-file=x", "-optf=x", "-optf x", "-optf\tx", "--apply-controls=x", "--output-file=x", "-o=x", "x.ptx", "",
     "--input-as-string=x", "-ias=x", "--help", "-h", "--version", "-V", "-optf\0=x"],
)  # fmt: skip
def test_options_that_make_ptxas_read_files_are_rejected_everywhere(copy: Path, option: str) -> None:
    with raises(JitltoError, "jitlto-link-option", "ptxas"):
        LinkOptions(ptxas=(option,))
    replaced(copy, "family", lambda record: record["link"].update(ptxas=[option]))
    with raises(DatabaseError, "database-damaged", "ptxas"):
        read(copy)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["/etc/passwd", "../x.cuh", "sub/../../x.cuh", 'a"b', "a\nb", ".."])
def test_an_interface_that_leaves_the_family_is_refused(copy: Path, name: str) -> None:
    replaced(copy, "family", lambda record: record["groups"][-1].update(interface=name))
    with raises(DatabaseError, "database-damaged", "interface"):
        read(copy)


@pytest.mark.slow
@pytest.mark.parametrize("include", ["{path}", "{up}{path}"])
def test_an_interface_header_includes_no_file_of_the_machine(copy: Path, tmp_path: Path, include: str) -> None:
    secret = tmp_path / "secret.h"
    secret.write_text("#define SECRET 7\n")
    line = f'#include "{include.format(path=secret, up="../" * 20).replace("//", "/")}"\n'

    def change(record: Any) -> None:
        record["headers"] = [
            [name, line + text + "\nstatic_assert(SECRET == 7);\n"] for name, text in record["headers"]
        ]

    replaced(copy, "family", change)
    with FragmentDatabase(copy) as database:
        planner = KernelFamily("mini", database).planner(data_type="float")
        planner.add_source("namespace mini { template <> __device__ float op<float>(float a) { return a; } }")
        with pytest.raises(JitltoError):
            planner.plan(arch="sm_90")
