"""The release of the nvJitLink that a process would load, told from its file, and whether another one is loaded.

Loading nvJitLink takes 30 ms, which a process that takes linked kernels from a pack saves.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from jitlto.cuda import libraries
from jitlto.errors import VersionError
from jitlto.model.versions import Version
from jitlto.uninterrupted import uninterrupted

# In the search order of cuda.pathfinder; CUDA 13 has one directory for all its libraries.
_DIRECTORIES = ("nvidia/cu13/lib", "nvidia/nvjitlink/lib")
_NAMES = ("libnvJitLink.so.13", "libnvJitLink.so.12")
# Programs call the functions of the release whose nvJitLink.h they were compiled with, so that a library exports those
# of all releases of its major up to its own. The names are at the beginning of the file.
_EXPORTED = re.compile(rb"\0__nvJitLinkComplete_(\d+)_(\d+)(?=\0)")
_BEGINNING = 1 << 16


def installed_release(packages: Iterable[str], conda: str) -> str | None:
    """Return the release, such as ``13.0``, of the installed nvJitLink; None if it cannot be told from files alone.

    It cannot if several releases are installed, or if none is in a package or in a conda environment, where
    cuda.pathfinder looks first.

    Args:
        packages: The directories into which packages are installed.
        conda: The conda environment; empty if there is none.
    """
    wheels = [f"{place}/{each}" for place in packages for each in _DIRECTORIES]
    for directories in (wheels, [f"{conda}/lib"] if conda else []):
        found = [f"{directory}/{name}" for directory in directories for name in _NAMES]
        releases = {_release(path) for path in found if os.path.isfile(path)}  # noqa: PTH113 - a string, for speed
        if releases:
            return releases.pop() if len(releases) == 1 else None
    return None


def _release(path: str) -> str | None:
    """Return the release of an nvJitLink; None if the file is not like those that are known."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a string, for speed
            exported = _EXPORTED.findall(file.read(_BEGINNING))
    except OSError:
        return None
    major, minor = max(((int(major), int(minor)) for major, minor in exported), default=(0, 0))
    return f"{major}.{minor}" if major else None


def name_loaded(error: VersionError, linker: Version) -> VersionError:
    """Say in an error about versions where nvJitLink comes from, if another library has loaded one of its own."""
    with uninterrupted:
        loaded = libraries.load_nvidia_dynamic_lib("nvJitLink")
    path: str | None = loaded.abs_path if loaded.was_already_loaded_from_elsewhere else None
    if path is not None and not any(Path(path).is_relative_to(f"{place}/nvidia") for place in sys.path):
        error.hint = (
            f"nvJitLink {linker} is the one that was already loaded in this process, from {path}: "
            f"update or remove what loads it, or use jitlto before that does; otherwise {error.hint}"
        )
    return error
