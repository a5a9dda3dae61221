"""Locks save work, and nothing depends on them: where a file system has none, work goes on without."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from pathlib import Path

import pytest

from jitlto.base.cache_dir import CacheDir, FileLock
from jitlto.build import pipeline
from jitlto.build.cache.cache import open_cache
from jitlto.families import declaration
from tests.support.families import MINI, write_family
from tests.support.outputs import SPECIAL, special_file
from tests.support.process import started

KEY = "ab" * 32
#: What flock answers where a file system has no locks, or too many (NFS, FUSE, Lustre, 9p).
MISSING = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.EIO, errno.EBADF)


@pytest.fixture(params=MISSING, ids=lambda number: errno.errorcode[number])
def no_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", fail)


def test_one_at_a_time_has_a_lock(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "x.lock"), FileLock(tmp_path / "x.lock")
    assert first.acquire()
    assert not second.acquire()
    first.release()
    assert second.acquire()
    first.release()  # not its own any more
    assert not first.acquire()
    second.release()


@pytest.mark.slow
def test_a_lock_is_waited_for_as_long_as_is_said(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "x.lock"), FileLock(tmp_path / "x.lock")
    assert first.acquire()
    begin = time.monotonic()
    assert not second.acquire(0.15)
    assert 0.1 < time.monotonic() - begin < 5
    first.release()
    assert second.acquire(5)
    second.release()


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    code = (
        "import sys, time; from pathlib import Path; from jitlto.base.cache_dir import FileLock\n"
        "print(FileLock(Path(sys.argv[1])).acquire(), flush=True); time.sleep(60)"
    )
    with started("-c", code, path) as process:
        assert process.stdout
        assert process.stdout.readline() == "True\n"
        assert not FileLock(path).acquire()
        process.kill()
        process.wait()
    lock = FileLock(path)
    assert lock.acquire(5)
    lock.release()


def test_a_lock_does_not_change_a_file_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345\nelsewhere\n")
    (tmp_path / "link").symlink_to("file")
    lock = FileLock(tmp_path / "file")
    assert lock.acquire()
    lock.release()
    assert (tmp_path / "file").read_bytes() == b"12345\nelsewhere\n"
    with pytest.raises(OSError, match="symbolic link"):
        FileLock(tmp_path / "link").acquire()


@pytest.mark.usefixtures("no_locks")
def test_without_locks_every_claim_is_granted_and_one_warning_is_given(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = CacheDir(tmp_path / "cache", 1 << 20)
    for _ in range(2):
        for key in (KEY, "cd" * 32):
            claims = [store.claim(key), store.claim(key)]
            assert None not in claims
            for claim in claims:
                assert claim is not None
                claim.release()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert str(store.directory) in caplog.text


@pytest.mark.parametrize("kind", SPECIAL)
def test_something_else_in_the_place_of_a_lock_is_in_nobodys_way(tmp_path: Path, kind: str) -> None:
    store = CacheDir(tmp_path / "cache", 1 << 20)
    (tmp_path / "cache" / "locks").mkdir()
    special_file(tmp_path / "cache" / "locks" / f"{KEY[:3]}.lock", kind)
    claim = store.claim(KEY)
    assert claim is not None
    claim.release()


@pytest.mark.slow
@pytest.mark.usefixtures("no_locks")
def test_a_build_is_not_held_up_by_a_file_system_without_locks(tmp_path: Path) -> None:
    families = [declaration.load_family(write_family(tmp_path / "mini", MINI))]
    (tmp_path / "cache" / "build" / "locks").mkdir(parents=True, mode=0o700)
    for number in range(16**3):  # as an earlier build on a file system with locks leaves them
        (tmp_path / "cache" / "build" / "locks" / f"{number:03x}.lock").touch()
    begin = time.monotonic()
    assert pipeline.build(families, tmp_path / "x.fragdb", cache=open_cache(tmp_path / "cache")).compiled == 6
    assert time.monotonic() - begin < 60
