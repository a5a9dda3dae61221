"""The upkeep of a store: what it holds, and what goes when it holds too much."""

from __future__ import annotations

import contextlib
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jitlto.model.record import Record

if TYPE_CHECKING:
    import os

    from jitlto.storage.cache_dir import Store

_STALE = 86400.0  # seconds: a temporary file older than this has lost its writer
# What an entry is called below kind and first digits, and the temporary file that becomes one.
_ENTRY = r"[0-9a-f]{62}|\.jitlto-.*"


class Usage(Record):
    """What a store holds: entries by kind, and bytes in all."""

    entries: dict[str, int]
    size: int


def usage(store: Store) -> Usage:
    """Count what is there."""
    counts: dict[str, int] = {}
    size = 0
    for path, status in _files(store):
        kind = path.relative_to(store.directory).parts[0]
        counts[kind] = counts.get(kind, 0) + 1
        size += status.st_size
    return Usage(counts, size)


def prune(store: Store, size: int | None = None) -> int:
    """Remove what was used longest ago until at most ``size`` bytes are left (by default the store's bound).

    What another process is writing stays. Nothing is removed if the store is read only.

    Returns
    -------
    int
        How many entries were removed.
    """
    if store.readonly:
        return 0
    size = store.size if size is None else size
    files = sorted(_files(store), key=lambda item: item[1].st_mtime)
    total = sum(status.st_size for _, status in files)
    removed = 0
    for path, status in files:
        temporary = path.name.startswith(".")
        stale = time.time() - status.st_mtime > _STALE
        if not stale if temporary else total <= size:
            continue
        with contextlib.suppress(OSError):
            path.unlink()
            removed += 1
            total -= status.st_size
    return removed


def clear(store: Store) -> int:
    """Remove every entry; returns how many there were."""
    return prune(store, -1)


def _files(store: Store) -> Iterator[tuple[Path, os.stat_result]]:
    """The entries and what is being written; whatever else lies in the directory is somebody's own."""
    for folder in store.directory.glob("*/[0-9a-f][0-9a-f]"):
        with contextlib.suppress(OSError):
            if not all(stat.S_ISDIR(directory.lstat().st_mode) for directory in (folder.parent, folder)):
                continue  # a link, which leads to what is not ours
            for path in folder.iterdir():
                if re.fullmatch(_ENTRY, path.name):
                    with contextlib.suppress(OSError):
                        yield path, path.lstat()
