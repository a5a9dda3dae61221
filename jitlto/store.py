"""A directory of checksummed entries by key: shared between processes, bounded in size, never the cause of a failure.

One file an entry: magic, the payload's SHA-256, payload. It is written under a temporary name in the same directory and
renamed, so that a reader sees all of it or nothing. A file that does not check is a miss, and is replaced. What was
used longest ago goes first when the directory outgrows its bound.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jitlto import ownership
from jitlto.files import open_regular
from jitlto.record import Record

if TYPE_CHECKING:
    from filelock import BaseFileLock

_MAGIC = b"jitlto store 1\n"
_HEAD = len(_MAGIC) + 32
_TOUCHED = 3600.0  # seconds: an entry's time of use is no finer than this
_STALE = 86400.0  # seconds: a temporary file older than this has lost its writer
_STRIPES = 3  # hexadecimal digits of a key that choose its lock: 4096 lock files and no more

# What an entry is called below kind and first digits, and the temporary file that becomes one.
_ENTRY = r"[0-9a-f]{62}|\.jitlto-.*"


class Warnings:
    """Warnings of which each is said once, by whichever thread comes first.

    Parameters
    ----------
    name : str
        The logger's.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._said: dict[object, object] = {}

    def say(self, about: object, message: str, *args: object) -> None:
        """Log a warning, unless one about the same was logged before."""
        mine = object()
        if self._said.setdefault(about, mine) is mine:  # one step for all threads, and no lock for a fork to lose
            import logging  # 2 ms, and most processes say nothing

            logging.getLogger(self._name).warning(message, *args)


class Usage(Record):
    """What a store holds: entries by kind, and bytes in all."""

    entries: dict[str, int]
    size: int


class Store:
    """Entries in a directory that belongs to this user alone.

    Parameters
    ----------
    directory : Path
        Made if it is missing, with mode 0700.
    size : int
        Bytes that :meth:`prune` leaves at most.
    readonly : bool
        Whether entries are read only; the directory then need not be writable, is not made, and nothing in it changes.

    Raises
    ------
    OSError
        If the directory cannot be made or written, or is not this user's own; see :func:`open_store`.
    """

    def __init__(self, directory: Path, size: int, *, readonly: bool = False) -> None:
        self.directory = directory = directory.absolute()  # whatever becomes the current directory later
        self.size = size
        self.readonly = readonly
        #: Why the last entry that could not be written could not be; None before there is one.
        self.refused: str | None = None
        self._warnings = Warnings(__name__)
        self._written: int | None = None  # bytes since the store was last pruned; None before the first time
        ownership.require_own(str(directory))
        if not readonly:
            ownership.make(str(directory))
        status = directory.stat()
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            raise PermissionError(f"{directory} belongs to user {status.st_uid}")
        self._owner = status.st_uid
        if stat.S_IMODE(status.st_mode) & 0o022:
            raise PermissionError(f"{directory} can be written by others")
        if not readonly and not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(f"{directory} cannot be written")

    def get(self, kind: str, key: str) -> bytes | None:
        """The payload stored under ``key`` (hexadecimal), None if there is none or it is damaged."""
        path = self._path(kind, key)
        try:
            with open_regular(path, follow=False) as (file, status):
                # Who could put another directory in the place of ours cannot put entries there that are this user's.
                if status.st_uid != self._owner or status.st_mode & 0o022:
                    return None
                data = file.read()
                age = time.time() - status.st_mtime
        except OSError:
            return None
        payload = data[_HEAD:]
        if data[: len(_MAGIC)] != _MAGIC or data[len(_MAGIC) : _HEAD] != hashlib.sha256(payload).digest():
            self._warnings.say(path, "%s is damaged and is not used", path)
            return None
        if age > _TOUCHED and not self.readonly:
            with contextlib.suppress(OSError):
                os.utime(path)
        return payload

    def put(self, kind: str, key: str, payload: bytes) -> None:
        """Store a payload; a directory that takes no more is said once on the log. Nothing if it is read only."""
        if self.readonly:
            return
        path = self._path(kind, key)
        try:
            self._make(kind, key[:2])
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)  # nothing of ours: an entry is a file
            _replace(path, _MAGIC + hashlib.sha256(payload).digest() + payload)
            if self._written is not None:
                self._written += len(payload)
        except OSError as error:
            self.refused = error.strerror or str(error)
            self._warnings.say(self.directory, "%s takes no more entries: %s", self.directory, self.refused)

    def claim(self, key: str) -> BaseFileLock | None:
        """Claim ``key`` for this process until the lock that is returned is released; None if another one has it.

        Never waits. A claim ends with its process. It only saves work: where locks do not work, or the store is read
        only, everybody gets one.
        """
        import filelock  # a tenth of a second in some releases, and whoever only reads needs none of it

        path = self.directory / "locks" / f"{key[:_STRIPES]}.lock"
        lock = filelock.FileLock(path, timeout=0, thread_local=False)
        if self.readonly:
            return lock
        try:
            self._make("locks")
            if path.is_symlink():  # through which filelock before 3.20.1 would cut a file
                raise OSError(f"{path} is a link")
            lock.acquire()
        except filelock.Timeout:
            return None
        except (OSError, NotImplementedError):
            import logging

            logging.getLogger(__name__).debug("no lock at %s", path)
        return lock

    def usage(self) -> Usage:
        """Count what is there."""
        counts: dict[str, int] = {}
        size = 0
        for path, status in self._files():
            kind = path.relative_to(self.directory).parts[0]
            counts[kind] = counts.get(kind, 0) + 1
            size += status.st_size
        return Usage(counts, size)

    def prune(self, size: int | None = None) -> int:
        """Remove what was used longest ago until at most ``size`` bytes are left (by default the store's bound).

        What another process is writing stays. Nothing is removed if the store is read only.

        Returns
        -------
        int
            How many entries were removed.
        """
        if self.readonly:
            return 0
        size = self.size if size is None else size
        files = sorted(self._files(), key=lambda item: item[1].st_mtime)
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

    def keep_bound(self) -> None:
        """Prune if it may be necessary: at a process's first call, and when it has written a sixteenth of the bound."""
        if self._written is None or self._written > self.size // 16:
            self._written = 0
            self.prune()

    def clear(self) -> int:
        """Remove every entry; returns how many there were."""
        return self.prune(-1)

    def _make(self, *names: str) -> None:
        """Make directories below this one; no further where somebody else, or a link, has taken the place of ours."""
        ownership.make(str(self.directory))  # should it have been removed meanwhile
        directory, status = self.directory, self.directory.stat()
        for name in (*names, None):
            if status.st_uid != self._owner or not stat.S_ISDIR(status.st_mode):
                raise PermissionError(f"{directory} is not this user's own directory")
            if name is not None:
                directory /= name
                with contextlib.suppress(FileExistsError):
                    directory.mkdir(mode=0o700)
                status = directory.lstat()

    def _path(self, kind: str, key: str) -> Path:
        return self.directory.joinpath(kind, key[:2], key[2:])

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """The entries and what is being written; whatever else lies in the directory is somebody's own."""
        for folder in self.directory.glob("*/[0-9a-f][0-9a-f]"):
            with contextlib.suppress(OSError):
                if not all(stat.S_ISDIR(directory.lstat().st_mode) for directory in (folder.parent, folder)):
                    continue  # a link, which leads to what is not ours
                for path in folder.iterdir():
                    if re.fullmatch(_ENTRY, path.name):
                        with contextlib.suppress(OSError):
                            yield path, path.lstat()


def _replace(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".jitlto-")
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(data)
        os.replace(name, path)  # noqa: PTH105 - a string
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)  # noqa: PTH108
        raise


def open_store(directory: Path, size: int, *, readonly: bool = False) -> Store | None:
    """The store in ``directory``; None, and a warning on the log, if it cannot be used."""
    try:
        return Store(directory, size, readonly=readonly)
    except OSError as error:
        if readonly and isinstance(error, FileNotFoundError):
            return None  # nothing to read yet
        import logging

        logging.getLogger(__name__).warning(
            "the cache in %s cannot be used, so this goes without: %s", directory, error.strerror or error
        )
        return None
