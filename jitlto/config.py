"""Every environment variable that jitlto reads, read once, in one frozen value.

``JITLTO_DATABASE_PATH``
    Fragment databases, or directories that hold some, separated like ``PATH``.
``JITLTO_CACHE_DIR``
    The user's cache directory; by default ``$XDG_CACHE_HOME/jitlto`` or ``~/.cache/jitlto``.
``JITLTO_BUILD_CACHE_SIZE``
    What the build cache may hold, in bytes or with a suffix ``K``, ``M``, ``G`` or ``T``; by default ``4G``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jitlto.errors import JitltoError


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a process.

    Parameters
    ----------
    database_path : tuple of Path
        Database files and directories of databases, in the order in which they are searched.
    cache_dir : Path
        Where caches of this user lie.
    build_cache_size : int
        Bytes that the build cache may hold.
    """

    database_path: tuple[Path, ...]
    cache_dir: Path
    build_cache_size: int

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Config:
        """Read the settings from environment variables."""
        paths = environment.get("JITLTO_DATABASE_PATH", "").split(os.pathsep)
        base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        cache_dir = environment.get("JITLTO_CACHE_DIR") or str(Path(base) / "jitlto")
        size = _size("JITLTO_BUILD_CACHE_SIZE", environment.get("JITLTO_BUILD_CACHE_SIZE") or "4G")
        return cls(tuple(Path(path) for path in paths if path), Path(cache_dir), size)


def _size(variable: str, text: str) -> int:
    match = re.fullmatch(r"(\d{1,18})([KMGT]?)", text.strip().upper())
    if match is None:
        raise JitltoError(f"{text!r} is no size", where=variable, hint="write bytes, or e.g. 500M or 4G")
    return int(match[1]) << 10 * " KMGT".index(match[2] or " ")


@cache
def current() -> Config:
    """The settings of this process, read at the first call."""
    return Config.read(os.environ)
