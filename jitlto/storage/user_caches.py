"""The user's caches: the one of linked kernels and the one of builds, where they lie and in what state they are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from jitlto import config
from jitlto.config import Config
from jitlto.errors import JitltoError
from jitlto.storage.cache_dir import CacheDir, Usage

CACHE_OFF = "JITLTO_CACHE=off: nothing is looked up in it or added"


@dataclass(frozen=True, slots=True)
class UserCache:
    """One of the user's caches.

    Args:
        name: ``cubins`` or ``build``.
        title: What it holds.
        bound: Bytes that it may hold.
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
            reasons = {FileNotFoundError: "it cannot be made", FileExistsError: "not a directory"}
            reason = reasons.get(type(error)) or error.strerror or str(error)
            what = f"cannot be used as a cache: {reason}"
            hint = "set JITLTO_CACHE_DIR to another directory; it must be this user's own"
            raise JitltoError(what, code="jitlto-unusable-cache", where=str(self.directory), hint=hint) from error

    def problem(self) -> str | None:
        """Why it cannot be read, or added to; None if it can. Nothing is made."""
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
        """What it holds; nothing if it cannot be read."""
        try:
            return self.open(readonly=True).usage()
        except (FileNotFoundError, JitltoError):
            return Usage({}, 0)

    def remove(self, *, bound: int | None = None, everything: bool = False) -> Removed:
        """Remove every entry, or those used longest ago until it is within a bound.

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
    """How many entries and bytes were removed from a cache, and how many bytes are left."""

    removed: int
    bytes: int
    bytes_left: int


def user_caches(settings: Config | None = None) -> tuple[UserCache, UserCache]:
    """The cache of linked kernels and the build cache, by the settings of this process or by others."""
    settings = settings or config.current()
    cubins, build = settings.cache_dir / "cubins", settings.cache_dir / "build"
    return (
        UserCache("cubins", "linked kernels and what leads to them", cubins, settings.cache_size, settings.cache),
        UserCache("build", "build cache", build, settings.build_cache_size),
    )
