"""Which file it is that stands under a name, what stands beside it, and where packages lie."""

from __future__ import annotations

import os
import site
from pathlib import Path
from typing import TypeAlias

#: What tells a file from any other that stands, or has stood, under its name.
Identity: TypeAlias = "tuple[int, ...]"


def identity(status: os.stat_result) -> Identity:
    """Device, inode, size in bytes, times of the last write and of the last change in nanoseconds."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def beside(path: Path, suffix: str) -> list[Path]:
    """The files ``STEM.suffix`` and ``STEM.*.suffix`` in the directory of ``path``, whose stem is ``STEM``; sorted."""
    try:
        names = os.listdir(path.parent)  # noqa: PTH208 - names are what is asked for
    except OSError:
        return []
    return [path.with_name(n) for n in sorted(names) if n.startswith(f"{path.stem}.") and n.endswith(suffix)]


def site_packages() -> list[str]:
    """The directories into which packages of this interpreter are installed."""
    return [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
