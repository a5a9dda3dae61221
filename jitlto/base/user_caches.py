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
from jitlto.base.files import EDITABLE, FETCHED, SUFFIX, remove_directory, write_hint

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

    def open(self) -> CacheDir:
        """Open its directory.

        Raises:
            JitltoError: If it cannot be used.
        """
        try:
            return CacheDir(self.directory, self.bound)
        except OSError as error:
            what = f"cannot be used as a cache: {error.strerror or error}"
            hint = write_hint(error, "set JITLTO_CACHE_DIR to a different directory, owned by this user")
            raise JitltoError(what, code="jitlto-unusable-cache", where=str(self.directory), hint=hint) from error

    def problem(self) -> str | None:
        """Return why it cannot be read or written, or None if it can. Creates nothing."""
        try:
            CacheDir(self.directory, self.bound, readonly=True)
        except FileNotFoundError:
            pass
        except OSError as error:
            return error.strerror or str(error)
        nearest = next(path for path in (self.directory, *self.directory.absolute().parents) if path.exists())
        if self.setting == "readonly" or os.access(nearest, os.W_OK | os.X_OK):
            return None
        return f"{nearest} cannot be written"

    def usage(self) -> Usage:
        """Return its number of entries and size; zero if it cannot be read."""
        try:
            return CacheDir(self.directory, self.bound, readonly=True).usage()
        except OSError:
            return Usage({}, 0)

    def prune(self, bound: int | None = None) -> int:
        """Remove the least recently used entries until it is within a size limit; return their number.

        Args:
            bound: Bytes, by default its own limit; negative to remove everything.

        Raises:
            JitltoError: If it cannot be used.
        """
        return self.open().prune(bound) if os.path.lexists(self.directory) else 0


@dataclass(frozen=True, slots=True)
class KeptDatabases:
    """Databases that are kept whole, without a limit, and go when all is cleared.

    Args:
        name: ``editable`` or ``fetched``.
        title: Its name in messages.
    """

    name: str
    title: str
    directory: Path
    bound: None = None
    setting: str = "on"

    def problem(self) -> None:
        """Nothing: whoever needs one of them says so."""

    def usage(self) -> Usage:
        """Return the number of databases, and the bytes kept for them."""
        found = self.databases()
        return Usage({"databases": len(found)} if found else {}, sum(found.values()))

    def databases(self) -> dict[Path, int]:
        """Return the databases, with the bytes kept for each."""
        found = {}
        with suppress(OSError):
            CacheDir(self.directory, 0, readonly=True)
            for path in sorted(self.directory.glob(f"[!.]*/*{SUFFIX}")):
                if not path.parent.is_symlink():
                    found[path] = sum(each.lstat().st_size for each in path.parent.iterdir())
        return found

    def prune(self, bound: int | None = None) -> int:
        """Remove all if the limit is negative, and return their number; a process that has opened one keeps it."""
        found = self.databases() if bound is not None and bound < 0 else {}
        for path in found:
            with suppress(OSError):
                path.unlink()  # first, so that nobody finds a part of it
            remove_directory(path.parent)
        return sum(not path.exists() for path in found)


def user_caches(settings: Config | None = None) -> tuple[UserCache, UserCache]:
    """Return the cache of linked kernels and the build cache, for the given settings or those of this process."""
    settings = settings or config.current()
    cubins, build = settings.cache_dir / "cubins", settings.cache_dir / "build"
    return (
        UserCache("cubins", "linked kernels and what leads to them", cubins, settings.cache_size, settings.cache),
        UserCache("build", "build cache", build, settings.build_cache_size),
    )


def kept_databases(settings: Config | None = None) -> tuple[KeptDatabases, KeptDatabases]:
    """Return the databases of editable installs and those fetched from shared stores."""
    root = (settings or config.current()).cache_dir
    return (
        KeptDatabases(EDITABLE, "databases of packages that are installed editable", root / EDITABLE),
        KeptDatabases(FETCHED, "databases fetched from shared stores", root / FETCHED),
    )
