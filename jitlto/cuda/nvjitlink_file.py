"""The release of the nvJitLink that a process would load, told from its file, and whether another one is loaded.

Loading nvJitLink takes 30 ms, which a process that takes linked kernels from a pack saves.
"""

from __future__ import annotations

import os
import re

from jitlto.base.errors import VersionError
from jitlto.base.versions import Version
from jitlto.cuda import libraries

_NAMES = ("libnvJitLink.so.13", "libnvJitLink.so.12")  # in the search order of cuda.pathfinder
# Programs call the functions of the release whose nvJitLink.h they were compiled with, so that a library exports those
# of all releases of its major up to its own. The names are at the beginning of the file.
_PREFIX = b"\0__nvJitLinkComplete_"
_EXPORTED = re.compile(_PREFIX + rb"(\d+)_(\d+)(?=\0)")
_BEGINNING = 1 << 16


def installed_release(conda: str) -> str | None:
    """Return the release, such as ``13.0``, of the installed nvJitLink; None if it cannot be told from files alone.

    It cannot if there is none in a package or in a conda environment, which are searched first.

    Args:
        conda: The conda environment; empty if there is none.
    """
    paths = [f"{conda}/lib/{name}" for name in _NAMES] if conda else []
    conda_path = next(filter(os.path.isfile, paths), None)
    path = libraries.find_packaged(*libraries.FILES["nvJitLink"]) or conda_path
    return _release(path) if path else None


def _release(path: str) -> str | None:
    """Return the release of an nvJitLink; None if the file is not like those that are known."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a string, for speed
            beginning = file.read(_BEGINNING)
    except OSError:
        return None
    first, last = beginning.find(_PREFIX), beginning.rfind(_PREFIX)  # faster than the expression
    exported = _EXPORTED.findall(beginning, first, last + 40) if first >= 0 else []
    major, minor = max(((int(major), int(minor)) for major, minor in exported), default=(0, 0))
    return f"{major}.{minor}" if major else None


def name_loaded(error: VersionError, linker: Version) -> VersionError:
    """Say in an error about versions where nvJitLink comes from, if another library has loaded one of its own."""
    loaded = libraries.load("nvJitLink")
    if loaded.is_foreign:
        error.hint = (
            f"nvJitLink {linker} is the one that was already loaded in this process, from {loaded.path}: "
            f"update or remove what loads it, or use jitlto before that does; otherwise {error.hint}"
        )
    return error
