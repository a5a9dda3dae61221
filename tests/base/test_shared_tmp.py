"""Caches in shared directories: files and links of other users are not used, followed or harmed."""

import json
import logging
import os
import re
import shutil
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jitlto.base.cache_dir import CacheDir, require_owned_path

KEY, OTHER_KEY = "ab" * 32, "cd" * 32
LARGE = 1 << 30
MINE, THEIRS = 54321, 54322  # users that need not exist
as_root = pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs root, to be two users")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory like ``/tmp``: world-writable, with the sticky bit."""
    directory = Path(tempfile.mkdtemp(prefix="jitlto-shared-", dir="/tmp"))
    directory.chmod(0o1777)
    yield directory
    shutil.rmtree(directory)


def as_user(user: int, work: Callable[[], Any]) -> Any:
    """Run a function as a different user in a subprocess; return its result through JSON."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.write(writing, json.dumps(work()).encode())
        except BaseException:  # noqa: BLE001 - told to the test
            os.write(writing, json.dumps({"failed": traceback.format_exc()}).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:  # noqa: PTH123 - a descriptor
        answer = json.loads(file.read())
    os.waitpid(child, 0)
    assert not (isinstance(answer, dict) and "failed" in answer), answer["failed"]
    return answer


def refusal(directory: Path) -> str:
    """Return why a directory is rejected as a cache, or an empty text."""
    try:
        store = CacheDir(directory, LARGE)
    except OSError as error:
        return str(error)
    store.put("units", KEY, b"payload")
    return store.write_error or ""


def user_refusal(directory: Path) -> str:
    return str(as_user(MINE, lambda: refusal(directory)))


# --- whose directory ---


@pytest.mark.slow
@as_root
def test_a_directory_that_another_user_made_in_tmp_is_rejected(shared: Path) -> None:
    theirs = shared / "cache"
    theirs.mkdir()
    for mode in (0o700, 0o755, 0o777, 0o1777):
        os.chown(theirs, THEIRS, THEIRS)
        theirs.chmod(mode)
        assert user_refusal(theirs / "cubins")
        assert user_refusal(theirs)
        assert list(theirs.iterdir()) == []


@pytest.mark.slow
@as_root
def test_a_link_that_another_user_has_planted_is_not_followed(shared: Path) -> None:
    mine = shared / "mine"
    mine.mkdir(mode=0o700)
    os.chown(mine, MINE, MINE)
    (shared / "link").symlink_to(mine)
    os.lchown(shared / "link", THEIRS, THEIRS)
    for path in (shared / "link", shared / "link" / "cubins"):
        assert f"belongs to user {THEIRS}" in user_refusal(path)
    assert list(mine.iterdir()) == []
    os.lchown(shared / "link", MINE, MINE)
    assert user_refusal(shared / "link" / "cubins") == ""
    assert (mine / "cubins").is_dir()


def test_this_users_links_are_followed_and_cycles_end(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "absolute").symlink_to(tmp_path / "real")
    (tmp_path / "relative").symlink_to("./absolute/inner/../inner")
    (tmp_path / "circle").symlink_to("circle")
    assert refusal(tmp_path / "relative" / "cache") == ""
    assert (tmp_path / "real" / "inner" / "cache").is_dir()
    with pytest.raises(OSError, match="symbolic links"):
        require_owned_path(str(tmp_path / "circle" / "x"))
    assert refusal(tmp_path / "circle" / "x")


@as_root
def test_a_directory_that_cannot_be_written_is_read(shared: Path) -> None:
    def work() -> list[str | None]:
        CacheDir(shared / "own", LARGE).put("units", KEY, b"payload")
        for path in (shared / "own", shared / "own" / "units"):
            path.chmod(0o500)
        store = CacheDir(shared / "own", LARGE)
        store.put("units", OTHER_KEY, b"more")
        with store.locked(KEY, 0, "works"):
            found = [store.get("units", KEY), store.get("units", OTHER_KEY)]
        return [store.write_error, *(data and data.decode() for data in found)]

    assert as_user(MINE, work) == ["Permission denied", "payload", None]


# --- what is planted in it ---


@pytest.fixture
def store(tmp_path: Path) -> CacheDir:
    store = CacheDir(tmp_path / "cache", LARGE)
    store.put("units", KEY, b"payload")
    return store


def test_a_link_is_not_an_entry_and_its_target_stays(store: CacheDir, tmp_path: Path) -> None:
    whole = Path(store._path("units", KEY)).read_bytes()
    victim = tmp_path / "victim"
    victim.write_bytes(whole)
    planted = Path(store._path("units", OTHER_KEY))
    planted.parent.mkdir()
    planted.symlink_to(victim)
    assert store.get("units", OTHER_KEY) is None
    store.put("units", OTHER_KEY, b"other")
    assert store.get("units", OTHER_KEY) == b"other"
    assert not planted.is_symlink()
    assert victim.read_bytes() == whole
    planted.unlink()
    planted.symlink_to(victim)
    assert store.prune(-1) == 2
    assert victim.read_bytes() == whole


@as_root
def test_an_entry_of_another_user_or_that_others_may_write_is_a_miss(store: CacheDir) -> None:
    path = Path(store._path("units", KEY))
    assert store.get("units", KEY) == b"payload"
    os.chown(path, THEIRS, -1)
    assert store.get("units", KEY) is None
    os.chown(path, 0, -1)
    path.chmod(0o666)
    assert store.get("units", KEY) is None
    store.put("units", KEY, b"payload")
    assert store.get("units", KEY) == b"payload"


@pytest.mark.parametrize("place", ["units", "units/ab", "locks"])
def test_a_link_in_the_place_of_a_directory_is_not_written_or_removed_through(
    store: CacheDir, tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    victim = tmp_path / "victim"
    (victim / "ab").mkdir(parents=True)
    for work in (victim / KEY[2:], victim / "ab" / KEY[2:]):  # files that are called like entries
        work.write_bytes(b"work")
    shutil.rmtree(store.directory / place, ignore_errors=True)
    (store.directory / place).symlink_to(victim)
    with caplog.at_level(logging.WARNING, "jitlto"):
        store.put("units", KEY, b"more")
        store.put("units", "ab" + "ef" * 31, b"more")
    with store.locked(KEY, 0, "works") as waited:
        assert waited == 0
    store.prune(-1)
    assert sorted(path.relative_to(victim) for path in victim.rglob("*")) == [
        *map(Path, sorted(["ab", f"ab/{KEY[2:]}", KEY[2:]], key=Path))
    ]
    assert (place == "locks") != ("is not this user's own" in caplog.text)


@as_root
def test_a_directory_that_was_exchanged_after_the_check_is_neither_used_nor_filled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    above = tmp_path / "above"
    store = CacheDir(above / "cache", LARGE)
    store.put("units", KEY, b"mine")
    shutil.copytree(store.directory, tmp_path / "theirs")
    for path in [tmp_path / "theirs", *(tmp_path / "theirs").rglob("*")]:
        os.chown(path, THEIRS, THEIRS)
    before = sorted((tmp_path / "theirs").rglob("*"))
    store.directory.rename(above / "moved")
    for exchange in ("directory", "link"):
        if exchange == "directory":
            (tmp_path / "theirs").rename(store.directory)
        else:
            store.directory.rename(tmp_path / "theirs")
            store.directory.symlink_to(tmp_path / "theirs")
        assert store.get("units", KEY) is None
        store.put("units", OTHER_KEY, b"more")
        with store.locked(OTHER_KEY, 0, "works") as waited:
            assert waited == 0
    assert sorted((tmp_path / "theirs").rglob("*")) == before
    assert "is not this user's own directory" in caplog.text


@as_root
@pytest.mark.parametrize("mode", [0o777, 0o2777])
@pytest.mark.parametrize("user", [0, MINE])
def test_a_volume_that_everybody_may_write_to_is_refused_with_a_remedy_that_helps(
    shared: Path, mode: int, user: int
) -> None:
    """As an emptyDir of Kubernetes, whose group may be one of the user's."""
    shared.chmod(mode)
    refused = as_user(user, lambda: refusal(shared / "cubins"))
    (remedy,) = re.findall(r"chmod \S+ /\S+", refused)
    subprocess.run(remedy.split(), check=True)
    assert as_user(user, lambda: refusal(shared / "cubins")) == ""
    assert (shared / "cubins").stat().st_uid == user
