"""Locks save work, and nothing depends on them: where a file system has none, work goes on without."""

import contextlib
import errno
import fcntl
import logging
import os
from pathlib import Path

import pytest

from jitlto.base import lock, log
from jitlto.base.cache_dir import CacheDir
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
    monkeypatch.setattr(log, "_warned", {})


def test_one_at_a_time_has_a_lock(tmp_path: Path) -> None:
    first = lock.claim(tmp_path / "x.lock")
    assert first is not None and first.is_locked
    assert lock.claim(tmp_path / "x.lock") is None
    first.release()
    second = lock.claim(tmp_path / "x.lock")
    assert second is not None
    first.release()  # not its own any more
    assert lock.claim(tmp_path / "x.lock") is None
    second.release()


def test_a_lock_is_waited_for_as_long_as_is_said_and_then_work_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_SILENT", 0.05)
    path = tmp_path / "x.lock"
    with lock.locked(path, 5, "does the same") as waited:
        assert waited == 0
        with lock.locked(path, 0.15, "does the same") as waited:
            assert 0.1 < waited < 5
    assert caplog.messages[0] == "waiting for another process that does the same"
    assert "doing it here too" in caplog.messages[1]
    with lock.locked(path, 5, "does the same") as waited:
        assert waited == 0


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    code = (
        "import sys, time; from pathlib import Path; from jitlto.base.lock import claim\n"
        "held = claim(Path(sys.argv[1])); print(held.is_locked, flush=True); time.sleep(60)"
    )
    with started("-c", code, path) as process:
        assert process.stdout
        assert process.stdout.readline() == "True\n"
        assert lock.claim(path) is None
        process.kill()
        process.wait()
    held = lock.claim(path, 5)
    assert held is not None
    held.release()


def test_a_lock_is_its_process_s_own_after_a_fork(tmp_path: Path) -> None:
    held = lock.claim(tmp_path / "x.lock")
    assert held is not None
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            held.release()
            status = 0 if lock.claim(tmp_path / "x.lock") is None else 2
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert lock.claim(tmp_path / "x.lock") is None
    held.release()
    again = lock.claim(tmp_path / "x.lock")
    assert again is not None
    again.release()


def test_a_lock_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345\nelsewhere\n")
    (tmp_path / "link").symlink_to("file")
    held = lock.claim(tmp_path / "link")
    assert held is not None and not held.is_locked
    assert (tmp_path / "file").read_bytes() == b"12345\nelsewhere\n"


def test_a_lock_file_that_was_left_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As filelock's soft locks take it, where flock answers ENOSYS."""
    (tmp_path / "x.lock").write_text(f"{os.getpid()}\n")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", fail)
    with lock.locked(tmp_path / "x.lock", 60, "does the same") as waited:
        assert waited == 0


@pytest.mark.usefixtures("no_locks")
def test_without_locks_every_claim_is_granted_and_one_warning_is_given(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = CacheDir(tmp_path / "cache", 1 << 20)
    for _ in range(2):
        for key in (KEY, "cd" * 32):
            with store.locked(key, 60, "works") as first, store.locked(key, 60, "works") as second:
                assert first == second == 0
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert str(store.directory) in caplog.text


@pytest.mark.parametrize("kind", SPECIAL)
def test_something_else_in_the_place_of_a_lock_is_in_nobodys_way(tmp_path: Path, kind: str) -> None:
    store = CacheDir(tmp_path / "cache", 1 << 20)
    (tmp_path / "cache" / "locks").mkdir(parents=True)
    special_file(tmp_path / "cache" / "locks" / f"{KEY[:3]}.lock", kind)
    with store.locked(KEY, 60, "works") as waited:
        assert waited == 0
