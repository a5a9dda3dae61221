"""The upkeep of stores: what is used stays longest, and what is not theirs stays."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from jitlto.storage.cache_dir import CacheDir

KEYS = [hashlib.sha256(bytes([n])).hexdigest() for n in range(10)]


@pytest.fixture
def store(tmp_path: Path) -> CacheDir:
    return CacheDir(tmp_path / "store", 1 << 30)


def test_the_longest_unused_entries_go_first(store: CacheDir) -> None:
    for number, key in enumerate(KEYS):
        store.put("units", key, bytes(1000))
        os.utime(store._path("units", key), (number * 10_000, number * 10_000))
    assert store.get("units", KEYS[0]) is not None  # which makes it the last used
    assert store.prune(5 * 1100) == 5
    assert [n for n in range(10) if store.get("units", KEYS[n])] == [0, 6, 7, 8, 9]
    assert store.usage().size <= 5 * 1100
    assert store.usage().entries == {"units": 5}


def test_what_fits_is_not_pruned_but_for_what_dead_writers_left(store: CacheDir) -> None:
    store.put("units", KEYS[0], b"payload")
    left = store._path("units", KEYS[0]).with_name(".jitlto-half")
    left.write_bytes(b"half")
    assert store.prune() == 0
    os.utime(left, (0, 0))
    assert store.prune() == 1
    assert not left.exists()
    assert store.get("units", KEYS[0]) == b"payload"


def test_what_is_not_an_entry_is_nobodys_to_remove(store: CacheDir) -> None:
    foreign = [store.directory / name for name in ("main.o", "src/main.o", "src/ab/main.o", "units/ab/notes", ".x")]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"work")
        os.utime(path, (0, 0))
    store.put("units", KEYS[0], b"payload")
    assert store.usage().entries == {"units": 1}
    assert store.clear() == 1
    assert [path.read_bytes() for path in foreign] == [b"work"] * len(foreign)
