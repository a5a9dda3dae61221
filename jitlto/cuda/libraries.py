"""NVIDIA's Python packages: the one place that imports ``cuda.*`` and finds files, each when it is first used.

cuda.pathfinder looks for files of packages in the interpreter's own site-packages, whatever Python imports from. pip's
isolated builds, ``pip install --target`` and PYTHONPATH have theirs elsewhere, so they are looked for here along
``sys.path``, as modules are. cuda.bindings and cuda.core get their libraries from cuda.pathfinder, which takes what is
loaded already.

Two threads cannot import ``cuda.core`` at once: one finds it half imported.
"""

import errno
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from jitlto.base.frozen import Frozen
from jitlto.base.uninterrupted import alone, uninterrupted

# What other modules import from here → where it is: a module of the bindings, or an attribute.
_BINDINGS = "cuda.bindings"
_HOMES = {
    **dict.fromkeys(("driver", "nvjitlink", "nvrtc"), _BINDINGS),
    **dict.fromkeys(("Device", "Kernel", "ObjectCode", "Stream"), "cuda.core"),
    "StridedMemoryView": "cuda.core.utils",
    "find_nvidia_binary_utility": "cuda.pathfinder",
    "find_nvidia_header_directory": "cuda.pathfinder",
}
#: Where CUDA 13's and CUDA 12's packages have each library, below ``nvidia/``.
FILES = {
    "nvfatbin": ("cu13/lib/libnvfatbin.so.13", "nvfatbin/lib/libnvfatbin.so.12"),
    "nvJitLink": ("cu13/lib/libnvJitLink.so.13", "nvjitlink/lib/libnvJitLink.so.12"),
    "nvrtc": ("cu13/lib/libnvrtc.so.13", "cuda_nvrtc/lib/libnvrtc.so.12"),
    "nvvm": ("cu13/lib/libnvvm.so.4", "cuda_nvcc/nvvm/lib64/libnvvm.so"),
}
_BY_MODULE = {name.lower(): name for name in FILES}  # module of the bindings → library
# Programs call the functions of the release whose nvJitLink.h they were compiled with, so that a library exports those
# of all releases of its major up to its own. The names are at the beginning of the file.
_EXPORTED = b"\0__nvJitLinkComplete_"
_BEGINNING = 1 << 16


class Loaded(Frozen):
    """A library of this process: where it is, and whether another one loaded it, from outside this environment."""

    path: str
    is_foreign: bool


def bindings_release() -> str | None:
    """Return the release of cuda-bindings; None if it is not installed."""
    with alone:
        try:
            release: str = import_module(_BINDINGS).__version__
        except ImportError:
            return None
    return release


def find_packaged(*files: str) -> str | None:
    """Return the path of the first of these files of NVIDIA's packages, in the order of ``sys.path``.

    Args:
        files: Below ``nvidia/``.
    """
    for place in sys.path:
        for file in files:
            path = f"{place or os.curdir}/nvidia/{file}"
            if os.path.isfile(path):  # noqa: PTH113 - strings, for speed
                return os.path.abspath(path)  # noqa: PTH100
    return None


@cache
def load(name: str) -> Loaded:
    """Load a library: this environment's package, or else what cuda.pathfinder finds. What is loaded already stays.

    Args:
        name: One of :data:`FILES`.

    Raises:
        FileNotFoundError: If it is not there; ``filename`` lists ``sys.path``, where it was looked for first.
        OSError, RuntimeError: If it cannot be loaded.
    """
    packaged, names = find_packaged(*FILES[name]), [Path(file).name for file in FILES[name]]
    with alone:
        if packaged and _load_first(Path(packaged), names):
            return Loaded(packaged, is_foreign=False)  # without cuda.pathfinder, which takes 40 ms
        pathfinder = import_module("cuda.pathfinder")
        try:
            found = pathfinder.load_nvidia_dynamic_lib(name)
        except pathfinder.DynamicLibNotFoundError:
            found = None
    # Packages that only cuda.pathfinder finds are those of an environment from which Python does not import.
    if found is None or (packaged is None and found.found_via == "site-packages"):
        major = (bindings_release() or "").partition(".")[0]
        wanted = " or ".join([each for each in names if each.endswith(f".{major}")] or names)
        raise FileNotFoundError(errno.ENOENT, f"there is no {wanted}", ", ".join(filter(None, sys.path)))
    if packaged is None:
        return Loaded(found.abs_path, found.was_already_loaded_from_elsewhere)
    return Loaded(found.abs_path, Path(found.abs_path).resolve() != Path(packaged).resolve())


@uninterrupted
def _load_first(path: Path, names: Iterable[str]) -> bool:
    """Load a library as cuda.pathfinder does, unless it is loaded by one of its names; return whether it was not.

    NVRTC 13.0 does not find its built-ins beside itself.
    """
    import ctypes  # 5 ms, which a kernel from a pack does not need

    for name in names:
        with suppress(OSError):
            ctypes.CDLL(name, os.RTLD_NOLOAD)
            return False
    mode = os.RTLD_NOW | os.RTLD_GLOBAL
    for each in (*path.parent.glob(f"{path.name.partition('.')[0]}-builtins.so.*"), path):
        # Called as any function, this does not hold the interpreter's lock for the 8 ms of nvJitLink, as CDLL does.
        ctypes.CDLL(None).dlopen(os.fsencode(each), mode)
        ctypes.CDLL(str(each), mode)
    return True


def installed_release(conda: str) -> str | None:
    """Return the release, such as ``13.0``, of the nvJitLink that a process would load; None if files do not tell it.

    They do not if it is neither in a package nor in a conda environment, which are searched first. Loading it instead
    takes 30 ms, which a process that takes linked kernels from a pack saves.

    Args:
        conda: The conda environment; empty if there is none.
    """
    names = [file.rpartition("/")[2] for file in FILES["nvJitLink"]] if conda else []
    beside = (path for name in names if os.path.isfile(path := f"{conda}/lib/{name}"))  # noqa: PTH113 - strings, for speed
    try:
        with open(find_packaged(*FILES["nvJitLink"]) or next(beside, ""), "rb") as file:  # noqa: PTH123
            ends = file.read(_BEGINNING).split(_EXPORTED)[1:]
        releases = [tuple(map(int, each.partition(b"\0")[0].split(b"_"))) for each in ends]
    except (OSError, ValueError):
        return None
    return "{}.{}".format(*max(releases)) if releases else None


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    with alone:
        value = import_module(f"{home}.{name}") if home == _BINDINGS else getattr(import_module(home), name)
    if name in _BY_MODULE:
        load(_BY_MODULE[name])
    globals()[name] = value
    return value
