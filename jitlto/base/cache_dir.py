"""A directory of checked entries by key: shared between processes, bounded in size, never the cause of a failure.

An entry, in the form of :mod:`jitlto.base.entry`, is written under a temporary name in the same directory and renamed,
so that a reader sees all of it or nothing. What does not check is a miss, and is replaced. When the directory outgrows
its bound, the least recently used entries are removed.
"""

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from jitlto.base import entry
from jitlto.base.files import TEMPORARY, check_path, renamed
from jitlto.base.frozen import Frozen
from jitlto.base.log import log, warn_once

_STALE = 86400.0  # seconds: a temporary file older than this has lost its writer
_TOUCH_INTERVAL = 3600.0  # seconds: resolution of an entry's time of last use
_LOCK_DIGITS = 3  # hexadecimal digits of a key that choose its lock: at most 4096 lock files
_WRITTEN = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_ROOT = 0  # user id
_HEXADECIMAL = frozenset("0123456789abcdef")


class Usage(Frozen):
    """Content of a cache directory: number of entries by kind, and bytes in all."""

    entries: dict[str, int]
    size: int


class CacheDir:
    """Entries in a directory that belongs to this user alone.

    Args:
        directory: Created with the first entry, with mode 0700.
        size: The size limit in bytes, enforced by :meth:`prune`.

    Raises:
        OSError: If something else is there, or it belongs to another user; see :func:`open_cache_dir`.
    """

    #: What kernels that come from it are marked with; see ``jitlto.link.sources``.
    layer = "disk"

    def __init__(self, directory: Path, size: int) -> None:
        self.directory = directory = directory.absolute()  # so that a later chdir has no effect
        self.size = size
        #: Why the last failed write failed; None if no write has failed.
        self.write_error: str | None = None
        self._written: int | None = None  # bytes since the last pruning; None before the first
        self._owner = os.getuid()
        check_path(directory)
        require_owned_path(str(directory))
        with contextlib.suppress(FileNotFoundError):
            status = directory.stat()
            if not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(f"{directory} is not a directory")
            if status.st_uid != self._owner:
                raise PermissionError(f"{directory} belongs to user {status.st_uid}")
            if stat.S_IMODE(status.st_mode) & 0o022:
                raise PermissionError(f"{directory} can be written by others: chmod go-w {directory}")

    def get(self, kind: str, key: str) -> bytes | None:
        """Return the payload stored under ``key`` (hexadecimal); None if it is missing or damaged."""
        path = self._path(kind, key)
        try:
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW
            with open(os.open(path, flags), "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
                status = os.fstat(file.fileno())
                # Another user who replaces the directory cannot create entries that belong to this user.
                if not stat.S_ISREG(status.st_mode) or status.st_uid != self._owner or status.st_mode & 0o022:
                    return None
                data = file.read()
                age = time.time() - status.st_mtime
        except OSError:
            return None
        payload = entry.decode(f"{kind}/{key}", data)
        if payload is None:
            if not entry.is_earlier(data):
                warn_once(__name__, path, "%s is damaged and is ignored", path)
            return None
        if age > _TOUCH_INTERVAL:
            with contextlib.suppress(OSError):
                os.utime(path)
        return payload

    def put(self, kind: str, key: str, payload: bytes) -> None:
        """Store a payload; a failure is logged once."""
        path = self._path(kind, key)
        try:
            self._make(kind, key[:2])
            with renamed(path) as name, open(os.open(name, _WRITTEN, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
                file.write(entry.encode(f"{kind}/{key}", payload))
            if self._written is not None:
                self._written += len(payload)
        except OSError as error:
            self.write_error = error.strerror or str(error)
            what = "no more entries can be stored in %s: %s"
            warn_once(__name__, self.directory, what, self.directory, self.write_error)

    def locked(self, key: str, timeout: float, what: str) -> contextlib.AbstractContextManager[float]:
        """Lock ``key`` for this process, as :func:`jitlto.base.lock.locked` does; not in a read-only directory."""
        try:
            self._make("locks")
        except OSError as error:
            log(__name__, "debug", "no locks in %s: %s", self.directory, error.strerror or error)
            return contextlib.nullcontext(0.0)
        from jitlto.base.lock import locked  # imported lazily: what is found needs no lock

        return locked(self.directory / "locks" / f"{key[:_LOCK_DIGITS]}.lock", timeout, what)

    def prune_if_due(self) -> None:
        """Prune at a process's first call, and whenever it has written a sixteenth of the bound."""
        if self._written is None or self._written > self.size // 16:
            self._written = 0
            self.prune()

    def usage(self) -> Usage:
        """Count the entries."""
        counts: dict[str, int] = {}
        size = 0
        for path, status in self._files():
            kind = path.parts[-3]
            counts[kind] = counts.get(kind, 0) + 1
            size += status.st_size
        return Usage(counts, size)

    def prune(self, size: int | None = None) -> int:
        """Remove the least recently used entries until at most ``size`` bytes are left (by default the bound).

        With a negative size, all are removed. Files that another process is writing are kept.

        Returns:
            int: The number of entries removed.
        """
        size = self.size if size is None else size
        files = sorted(self._files(), key=lambda item: item[1].st_mtime)
        total = sum(status.st_size for _, status in files)
        removed = 0
        for path, status in files:
            is_temporary = path.name.startswith(TEMPORARY)
            is_stale = time.time() - status.st_mtime > _STALE
            if not is_stale if is_temporary else total <= size:
                continue
            with contextlib.suppress(OSError):
                path.unlink()
                removed += 1
                total -= status.st_size
        return removed

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield entries and temporary files; everything else in the directory is left alone."""
        for place, _, names in os.walk(self.directory):  # which follows no links: they may lead outside
            folder = Path(place)
            is_of_entries = folder.parent.parent == self.directory and len(folder.name) == 2
            for name in names if is_of_entries and _HEXADECIMAL.issuperset(folder.name) else ():
                if name.startswith(TEMPORARY) or (len(name) == 62 and _HEXADECIMAL.issuperset(name)):
                    with contextlib.suppress(OSError):
                        yield (path := folder / name), path.lstat()

    def _make(self, *names: str) -> None:
        """Create directories below this one; PermissionError if one is a link or another user's directory."""
        directory = str(self.directory)
        make_private(directory)
        self._require_own(directory, os.stat(directory))  # noqa: PTH116 - texts, as a build makes thousands of entries
        for name in names:
            directory = f"{directory}/{name}"
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory, 0o700)  # noqa: PTH102
            self._require_own(directory, os.lstat(directory))

    def _require_own(self, directory: str, status: os.stat_result) -> None:
        if status.st_uid != self._owner or not stat.S_ISDIR(status.st_mode):
            raise PermissionError(f"{directory} is not this user's own directory")

    def _path(self, kind: str, key: str) -> str:
        return f"{self.directory}/{kind}/{key[:2]}/{key[2:]}"  # a text: a build looks for thousands


def open_cache_dir(directory: Path, size: int) -> CacheDir | None:
    """Open the cache in ``directory``; return None, and log a warning, if it cannot be used."""
    try:
        return CacheDir(directory, size)
    except OSError as error:
        what = "the cache in %s cannot be used and is ignored: %s"
        log(__name__, "warning", what, directory, error.strerror or error)
        return None


def require_owned_path(path: str) -> None:
    """Check that no user but this one and root controls where a directory's path leads.

    A world-writable directory on the way must have the sticky bit, as ``/tmp`` has, and its entry on the path, a link
    too, must belong to this user or root. The owners of the other directories need no check: an entry that they replace
    belongs to them, so it is ignored.

    Args:
        path: Absolute; it need not exist yet.

    Raises:
        PermissionError: If another user could change where it leads.
        OSError: If the path has too many links.
    """
    place, open_to_all = "/", False
    for part in filter(None, path.split("/")):
        below = os.path.normpath(os.path.join(place, part))  # noqa: PTH118
        try:
            status = os.lstat(below)
            if open_to_all and part != ".." and status.st_uid not in (_ROOT, os.getuid()):
                raise PermissionError(f"{below} belongs to user {status.st_uid}, and {place} can be written by all")
            if stat.S_ISLNK(status.st_mode):
                status = os.stat(below)  # noqa: PTH116 - fails for a circle
                require_owned_path(os.path.join(place, os.readlink(below)))  # noqa: PTH115, PTH118
                below = os.path.realpath(below)
        except FileNotFoundError:
            return
        place, open_to_all = below, bool(status.st_mode & stat.S_IWOTH)
        if open_to_all and not status.st_mode & stat.S_ISVTX:
            raise PermissionError(
                f"{place} can be written by others, who could replace its contents: its owner can prevent that by "
                f"chmod +t {place} (of an emptyDir of Kubernetes, an init container that runs as root)"
            )


def make_private(path: str) -> None:
    """Create a directory and its missing parents, for this user alone."""
    if os.path.isdir(path):  # noqa: PTH112
        return
    above = os.path.dirname(path)  # noqa: PTH120
    if above != path:
        make_private(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)  # noqa: PTH102
