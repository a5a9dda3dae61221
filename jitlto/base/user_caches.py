"""The user's caches, of linked kernels and of builds: their directories, limits, usage and problems."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jitlto.base import config
from jitlto.base.cache_dir import CacheDir, Usage
from jitlto.base.config import Config
from jitlto.base.errors import JitltoError
from jitlto.base.files import SUFFIX, write_hint

CACHE_OFF = "JITLTO_CACHE=off: nothing is read or stored"


@dataclass(frozen=True, slots=True)
class UserCache:
    """One of the user's caches.

    Args:
        name: ``cubins`` or ``build``.
        title: Its name in messages.
        bound: Its size limit in bytes.
        setting: ``on``, ``readonly`` or ``off``: whether programs use it.
    """

    name: str
    title: str
    directory: Path
    bound: int
    setting: str = "on"

    def open(self, *, readonly: bool = False) -> CacheDir:
        """Open its directory.

        Raises:
            FileNotFoundError: If it does not exist and is only to be read.
            JitltoError: If it cannot be used.
        """
        try:
            return CacheDir(self.directory, self.bound, readonly=readonly)
        except OSError as error:
            if readonly and isinstance(error, FileNotFoundError):
                raise
            reasons = {FileNotFoundError: "cannot be created", FileExistsError: "not a directory"}
            reason = reasons.get(type(error)) or error.strerror or str(error)
            what = f"cannot be used as a cache: {reason}"
            hint = write_hint(error, "set JITLTO_CACHE_DIR to a different directory, owned by this user")
            raise JitltoError(what, code="jitlto-unusable-cache", where=str(self.directory), hint=hint) from error

    def problem(self) -> str | None:
        """Return why it cannot be read or written, or None if it can. Creates nothing."""
        nearest = next(path for path in (self.directory, *self.directory.absolute().parents) if os.path.lexists(path))
        if not os.path.isdir(nearest):  # noqa: PTH112 - Path.is_dir raises where it may not look
            return f"{nearest} is not a directory"
        if self.setting != "readonly" and not os.access(nearest, os.W_OK | os.X_OK):
            return f"{nearest} cannot be written"
        try:
            CacheDir(self.directory, self.bound, readonly=True)
        except FileNotFoundError:
            pass
        except OSError as error:
            return error.strerror or str(error)
        return None

    def usage(self) -> Usage:
        """Return its number of entries and size; zero if it cannot be read."""
        try:
            return self.open(readonly=True).usage()
        except (FileNotFoundError, JitltoError):
            return Usage({}, 0)

    def remove(self, *, bound: int | None = None, everything: bool = False) -> Removed:
        """Remove every entry, or the least recently used ones until it is within a size limit.

        Args:
            bound: Bytes; by default its own bound.

        Raises:
            JitltoError: If it cannot be used.
        """
        if not os.path.lexists(self.directory):
            return Removed(0, 0, 0)
        cache = self.open()
        before = cache.usage().size
        entries = cache.clear() if everything else cache.prune(bound)
        left = cache.usage().size
        return Removed(entries, max(0, before - left), left)


@dataclass(frozen=True, slots=True)
class Removed:
    """The number of entries and bytes removed from a cache, and the number of bytes left."""

    removed: int
    bytes: int
    bytes_left: int


def user_caches(settings: Config | None = None) -> tuple[UserCache, UserCache]:
    """Return the cache of linked kernels and the build cache, for the given settings or those of this process."""
    settings = settings or config.current()
    cubins, build = settings.cache_dir / "cubins", settings.cache_dir / "build"
    return (
        UserCache("cubins", "linked kernels and what leads to them", cubins, settings.cache_size, settings.cache),
        UserCache("build", "build cache", build, settings.build_cache_size),
    )


def kept_databases(name: str, settings: Config) -> dict[Path, int]:
    """Return the databases in one of the folders ``editable`` and ``fetched``, with the bytes kept for each."""
    found = {}
    with suppress(OSError):
        CacheDir(settings.cache_dir / name, 0, readonly=True)
        for path in sorted((settings.cache_dir / name).glob(f"[!.]*/*{SUFFIX}")):
            if not path.parent.is_symlink():
                found[path] = sum(each.lstat().st_size for each in path.parent.iterdir() if each.suffix != ".lock")
    return found


def clear_databases(name: str, settings: Config) -> int:
    """Remove these databases, and return their number; a process that has opened one keeps it.

    Lock files stay, because a process may be waiting for one.
    """
    removed = 0
    for path in kept_databases(name, settings):
        with suppress(OSError):
            path.unlink()  # first, so that nobody finds a part of it
            removed += 1
            for each in path.parent.iterdir():
                if each.suffix != ".lock":
                    each.unlink()
            path.parent.rmdir()
    return removed
