"""Files: which one stands under a name, which database it holds, what stands beside it, and how another replaces it."""

import errno
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from jitlto import load
from jitlto.base import files
from jitlto.base.config import Config
from jitlto.base.errors import JitltoError
from jitlto.base.files import beside, digest_of, identity, is_database, read, replacing
from jitlto.build import pipeline
from jitlto.cuda import nvdisasm, toolkit
from jitlto.families import declaration
from tests.support.errors import raises
from tests.support.families import MINI, write_family
from tests.support.outputs import SPECIAL, special_file


def test_beside_a_file_stand_those_of_its_stem(tmp_path: Path) -> None:
    for name in ("x.pack", "x.b.pack", "x.c.pack", "x.c.d.pack", "x.pack.old", "xy.pack", "x.fragdb", "x.c.fragdb"):
        (tmp_path / name).touch()
    assert [path.name for path in beside(tmp_path / "x.fragdb", ".pack")] == ["x.b.pack", "x.pack"]
    assert [path.name for path in beside(tmp_path / "x.c.fragdb", ".pack")] == ["x.c.d.pack", "x.c.pack"]
    assert beside(tmp_path / "none" / "x.fragdb", ".pack") == []


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
        ("DELETE FROM meta", "INSERT INTO meta VALUES ('digest', printf('%064d', 0))"),
        ("PRAGMA page_size = 8192", "VACUUM"),
        ("DROP TABLE meta", "CREATE TABLE meta(name TEXT, value TEXT)", "INSERT INTO meta VALUES ('digest', 'x')"),
        ("PRAGMA application_id = 7",),
    ],
)
def test_the_digest_of_an_edited_file_is_what_is_written_there_or_nothing(
    mini_path: Path, tmp_path: Path, statements: tuple[str, ...]
) -> None:
    path = tmp_path / "edited.fragdb"
    shutil.copy(mini_path, path)
    edited(path, *statements)
    rows = dict(sqlite3.connect(path).execute("SELECT name, value FROM meta").fetchall())
    assert digest_of(path) in (None, rows.get("digest"))


def test_what_is_no_database_has_no_digest(mini_path: Path, tmp_path: Path) -> None:
    whole = mini_path.read_bytes()
    cut = [whole[:length] for length in (0, 100, 5000, 8192, -1)]
    for number, data in enumerate([*cut, b"x", whole + b"x", b"x" + whole[1:], bytes(8192)]):
        path = tmp_path / str(number)
        path.write_bytes(data)
        assert digest_of(path) is None
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "missing", "."):
        assert digest_of(tmp_path / name) is None


def test_what_a_process_writes_is_read_and_a_fifo_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    assert read(tmp_path / "file") == b"text"
    ours, theirs = os.pipe()
    os.write(theirs, b"from a process")
    os.close(theirs)
    assert read(f"/dev/fd/{ours}") == b"from a process"
    os.close(ours)
    os.mkfifo(tmp_path / "fifo")
    for path, why in ((tmp_path / "fifo", "a FIFO without a writer"), (Path("/dev/zero"), "not a file")):
        with pytest.raises(OSError, match=why):
            read(path)


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_new_file_is_written_whole_and_umask_says_who_may_read_it(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "file"
    before = os.umask(umask)
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(b"half")
            assert not path.exists()
            temporary.write_bytes(b"whole")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"whole"
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt])
def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path, failure: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(failure), replacing(path) as temporary:
        temporary.write_bytes(b"half")
        raise failure
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    files.write(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o7777) == (b"new", mode)


def test_a_link_is_kept_and_the_file_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    target = tmp_path / "inner" / "file"
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "second").symlink_to("inner/file")
    for data in (b"new", b"newer"):
        files.write(tmp_path / "first", data)
        assert (target.read_bytes(), target.is_symlink()) == (data, False)
    assert (tmp_path / "first").is_symlink()
    assert (tmp_path / "second").is_symlink()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        files.write(tmp_path / "loop", b"new")


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_file_is_neither_replaced_nor_written_to(tmp_path: Path, kind: str) -> None:
    path = special_file(tmp_path / "special", kind)
    (tmp_path / "link").symlink_to("special")
    before = path.lstat()
    for name in ("special", "link"):
        with pytest.raises(OSError, match="not a regular file"):
            files.write(tmp_path / name, b"new")
        with pytest.raises(OSError, match="not a regular file"):
            files.check_replaceable(tmp_path / name)
    assert identity(path.lstat()) == identity(before)


@pytest.mark.parametrize("name", ["a\0b", "\0", "a\ud800", "dir\0/x"])
def test_a_path_that_no_file_can_have_is_an_oserror(tmp_path: Path, name: str) -> None:
    attempts: list[Callable[[Path], object]] = [
        lambda path: files.write(path, b""),
        read,
        files.check_replaceable,
        is_database,
    ]
    for attempt in attempts:
        with pytest.raises(OSError, match="not a valid path"):
            attempt(tmp_path / name)
    assert digest_of(tmp_path / name) is None
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_no_matter_of_rights() -> None:
    def hint(number: int) -> str:
        return files.write_hint(OSError(number, os.strerror(number)), "get rights")

    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(sqlite3.Error) as caught:
        connection.executescript("PRAGMA max_page_count=1; CREATE TABLE a (b); CREATE TABLE c (d);")
    assert hint(errno.EACCES) == hint(errno.EROFS) == hint(errno.ENOENT) == "get rights"
    assert hint(errno.ENOSPC) == hint(errno.EDQUOT) == files.write_hint(caught.value, "get rights") != "get rights"


@pytest.mark.parametrize("call", ["fsync", "fchmod"])
def test_where_bytes_do_not_reach_the_disk_the_old_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space"):
        files.write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_without_a_temporary_directory_there_is_one_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mini_path: Path
) -> None:
    def fail() -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    def build() -> object:
        return pipeline.build([declaration.load_family(write_family(tmp_path / "mini", MINI))], tmp_path / "x.fragdb")

    monkeypatch.setattr(tempfile, "gettempdir", fail)
    monkeypatch.setattr(toolkit, "find_binary", lambda _: "nvdisasm")
    attempts: list[Callable[[], object]] = [
        lambda: files.temporary_directory("x").__enter__(), build, lambda: nvdisasm.disassemble(b"\x7fELF" + bytes(60)),
    ]  # fmt: skip
    for attempt in attempts:
        with raises(JitltoError, "jitlto-no-temporary-directory", "No usable", hint="TMPDIR"):
            attempt()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mini"]
    settings = Config.read({"HOME": "~"})
    assert settings.cache_dir.is_absolute()
    assert load("mini", mini_path).plan(arch="sm_90", data_type="float", op_name="twice").digest


def test_what_cannot_be_replaced_is_an_oserror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path(), Path("/"), tmp_path, tmp_path / "none" / "file", tmp_path / ("x" * 256)):
        with pytest.raises(OSError, match=r"Errno"), replacing(path) as temporary:
            temporary.write_bytes(b"new")
    assert list(tmp_path.iterdir()) == []
    assert list(Path("/").glob(".jitlto-*")) == []
