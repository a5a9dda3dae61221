"""What jitlto keeps for a user: linked kernels and builds; where it is, its limits, usage and problems."""

import errno
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jitlto.base import config
from jitlto.base.cache_dir import CacheDir, Usage
from jitlto.base.config import Config
from jitlto.base.errors import JitltoError
from jitlto.base.files import write_hint

CACHE_OFF = "JITLTO_CACHE=off: nothing is read or stored"


@dataclass(frozen=True, slots=True)
class UserCache:
    """One of the user's caches."""

    name: str  # cubins or build
    title: str  # its name in messages
    directory: Path
    bound: int  # its size limit in bytes
    setting: str = "on"  # or off: whether programs use it

    def open(self) -> CacheDir:
        """Open its directory to write to it; nothing is created before there is an entry.

        Raises:
            JitltoError: If it cannot be used.
        """
        try:
            cache = CacheDir(self.directory, self.bound)
            nearest = next(path for path in (cache.directory, *cache.directory.parents) if path.exists())
            if os.access(nearest, os.W_OK | os.X_OK):
                return cache
            raise PermissionError(errno.EACCES, f"{nearest} cannot be written")
        except OSError as error:
            what = f"cannot be used as a cache: {error.strerror or error}"
            hint = write_hint(error, "set JITLTO_CACHE_DIR to a different directory, owned by this user")
            raise JitltoError(what, code="jitlto-unusable-cache", where=str(self.directory), hint=hint) from error

    def problem(self) -> str | None:
        """Return why it cannot be read or written, or None if it can."""
        try:
            self.open()
        except JitltoError as error:
            return error.what
        return None

    def usage(self) -> Usage:
        """Return its number of entries and size; zero if it cannot be read."""
        with suppress(OSError):
            return CacheDir(self.directory, self.bound).usage()
        return Usage({}, 0)

    def prune(self, bound: int | None = None) -> int:
        """Remove the least recently used entries until it is within a size limit; return their number.

        Args:
            bound: Bytes, by default its own limit; negative to remove everything.

        Raises:
            JitltoError: If it cannot be used.
        """
        return self.open().prune(bound)


def user_caches(settings: Config | None = None) -> tuple[UserCache, UserCache]:
    """Return the cache of linked kernels and the build cache, for the given settings or those of this process."""
    settings = settings or config.current()
    cubins, build = settings.cache_dir / "cubins", settings.cache_dir / "build"
    return (
        UserCache("cubins", "linked kernels and what leads to them", cubins, settings.cache_size, settings.cache),
        UserCache("build", "build cache", build, settings.build_cache_size),
    )
