"""The store: what is read is what was written, whatever happens to the files; it never makes anything fail."""

import hashlib
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jitlto.base.cache_dir import CacheDir, open_cache_dir

KEYS = [hashlib.sha256(bytes([n])).hexdigest() for n in range(40)]
LARGE = 1 << 30


@pytest.fixture
def store(tmp_path: Path) -> CacheDir:
    return CacheDir(tmp_path / "store", LARGE)


def files(store: CacheDir) -> list[Path]:
    return [p for p in store.directory.rglob("*") if p.is_file() and p.parent.name != "locks"]


@pytest.mark.slow
def test_many_writers_and_readers_of_one_entry_see_whole_payloads(store: CacheDir) -> None:
    payloads = [bytes([n]) * 50_000 for n in range(8)]

    def work(number: int) -> set[bytes | None]:
        seen = set()
        for _ in range(30):
            store.put("units", KEYS[0], payloads[number])
            seen.add(store.get("units", KEYS[0]))
        return seen

    with ThreadPoolExecutor(8) as pool:
        for seen in pool.map(work, range(8)):
            assert seen <= set(payloads)
    assert len(files(store)) == 1


def test_the_directory_is_this_users_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = CacheDir(tmp_path / "a" / "store", LARGE)
    assert not store.directory.parent.exists()
    store.put("units", KEYS[0], b"payload")
    assert store.directory.stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with caplog.at_level(logging.WARNING, "jitlto"):
        assert open_cache_dir(shared, LARGE) is None
    assert f" {shared} can be written by others" in caplog.text


@pytest.mark.parametrize("kind", ["file", "below a file"])
def test_a_directory_that_cannot_be_used_is_a_warning_and_no_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    (tmp_path / "file").write_text("x")
    with caplog.at_level(logging.WARNING, "jitlto"):
        assert open_cache_dir(tmp_path / "file" / ("" if kind == "file" else "sub"), LARGE) is None
    assert "is ignored" in caplog.text


def test_a_non_file_in_place_of_an_entry_is_an_immediate_miss(store: CacheDir) -> None:
    path = Path(store._path("units", KEYS[0]))
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert store.get("units", KEYS[0]) is None
    store.put("units", KEYS[0], b"payload")
    assert store.get("units", KEYS[0]) == b"payload"


def test_a_full_store_is_reported_once_and_harmless(store: CacheDir, caplog: pytest.LogCaptureFixture) -> None:
    store.directory.mkdir()
    (store.directory / "units").write_text("in the way")
    with caplog.at_level(logging.WARNING, "jitlto"):
        for key in KEYS[:3]:
            store.put("units", key, b"payload")
            assert store.get("units", key) is None
    assert caplog.text.count("no more entries can be stored") == 1


# --- upkeep ---


def test_the_longest_unused_entries_go_first(store: CacheDir) -> None:
    for number, key in enumerate(KEYS[:10]):
        store.put("units", key, bytes(1000))
        os.utime(Path(store._path("units", key)), (number * 10_000, number * 10_000))
    assert store.get("units", KEYS[0]) is not None  # which makes it the last used
    assert store.prune(5 * 1200) == 5
    assert [n for n in range(10) if store.get("units", KEYS[n])] == [0, 6, 7, 8, 9]
    assert store.usage().size <= 5 * 1200
    assert store.usage().entries == {"units": 5}


def test_entries_that_fit_stay_and_stale_temporary_files_are_removed(store: CacheDir) -> None:
    store.put("units", KEYS[0], b"payload")
    left = Path(store._path("units", KEYS[0])).with_name(".jitlto-half")
    left.write_bytes(b"half")
    assert store.prune() == 0
    os.utime(left, (0, 0))
    assert store.prune() == 1
    assert not left.exists()
    assert store.get("units", KEYS[0]) == b"payload"


def test_files_that_are_not_entries_are_not_removed(store: CacheDir) -> None:
    foreign = [store.directory / name for name in ("main.o", "src/main.o", "src/ab/main.o", "units/ab/notes", ".x")]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"work")
        os.utime(path, (0, 0))
    store.put("units", KEYS[0], b"payload")
    assert store.usage().entries == {"units": 1}
    assert store.prune(-1) == 1
    assert [path.read_bytes() for path in foreign] == [b"work"] * len(foreign)
