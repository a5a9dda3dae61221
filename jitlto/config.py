"""Every environment variable that jitlto reads, read once, in one frozen value.

``JITLTO_DATABASE_PATH``
    Fragment databases, or directories that hold some, separated like ``PATH``.
``JITLTO_CACHE_DIR``
    The user's cache directory; by default ``$XDG_CACHE_HOME/jitlto`` or ``~/.cache/jitlto``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a process.

    Parameters
    ----------
    database_path : tuple of Path
        Database files and directories of databases, in the order in which they are searched.
    cache_dir : Path
        Where caches of this user lie.
    """

    database_path: tuple[Path, ...]
    cache_dir: Path

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Config:
        """Read the settings from environment variables."""
        paths = environment.get("JITLTO_DATABASE_PATH", "").split(os.pathsep)
        base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        cache_dir = environment.get("JITLTO_CACHE_DIR") or str(Path(base) / "jitlto")
        return cls(tuple(Path(path) for path in paths if path), Path(cache_dir))


@cache
def current() -> Config:
    """The settings of this process, read at the first call."""
    return Config.read(os.environ)
