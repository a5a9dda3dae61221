"""Discovery of CUDA components: where they are, their versions, and what to install when one is missing.

Packages are searched by :mod:`jitlto.cuda.libraries`; ``cuda.pathfinder`` knows conda environments and system toolkits
too. Nothing here needs a driver.
"""

import ctypes
import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

from jitlto.base.errors import ToolchainError
from jitlto.base.uninterrupted import uninterrupted
from jitlto.base.versions import Version
from jitlto.cuda import libraries

_BUILD_ID = re.compile(rb"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0(.{20})", re.S)
_PART = 1 << 16


def cuda_major() -> int | None:
    """Return the CUDA major of cuda-bindings, or else of nvJitLink's package; None if neither is installed."""
    release = libraries.bindings_release() or libraries.installed_release("")
    return int(release.partition(".")[0]) if release else None


def install_hint(*extras: str) -> str:
    """Return how to install the toolchain of the CUDA major at hand, and further extras."""
    major = cuda_major()
    majors = (12, 13) if major is None else (major,)
    commands = " or ".join(f"pip install 'jitlto[{','.join((f'cu{each}', *extras))}]'" for each in majors)
    return f"install the toolchain of {'one CUDA major' if major is None else f'CUDA {major}'}: {commands}"


@contextmanager
def needed(what: str, *extras: str) -> Iterator[None]:
    """Say what to install where a component is missing or cannot be loaded.

    Args:
        what: What is then said to be wrong.
        extras: What to install beside the toolchain.

    Raises:
        ToolchainError: For every error in the block.
    """
    try:
        yield
    except ToolchainError:
        raise
    # Besides an ImportError and an OSError, cuda.bindings raises a RuntimeError or its own status error.
    except Exception as error:
        where, text = (error.filename, error.strerror) if isinstance(error, FileNotFoundError) else (None, str(error))
        reason = next(iter((text or "").strip().splitlines()), repr(error))
        hint = install_hint(*extras)
        raise ToolchainError(f"{what}: {reason}", code="toolchain-missing", where=where, hint=hint) from error


@cache
def bindings(name: str) -> ModuleType:
    """Import the module ``cuda.bindings.<name>``, and load its library.

    Raises:
        ToolchainError: If cuda-bindings or the library is not installed.
    """
    with needed(f"cannot import cuda.bindings.{name}"):
        module: ModuleType = getattr(libraries, name)
    return module


def find_library(name: str) -> str:
    """Return the path of the library that cuda.bindings loads as ``nvrtc``, ``nvJitLink``, ...

    Raises:
        ToolchainError: If there is none, or if it cannot be loaded.
    """
    with needed(f"cannot load {name}"):
        return libraries.load(name).path


def nvrtc_version() -> Version:
    """Return the version of NVRTC; raise :class:`~jitlto.base.errors.ToolchainError` if there is none."""
    # cuda.bindings.nvrtc imports the driver's bindings too, which takes a twentieth of a second more.
    return _query_version("nvrtc", "nvrtcVersion")


def nvfatbin_version() -> Version:
    """Return the version of nvFatbin; raise :class:`~jitlto.base.errors.ToolchainError` if there is none."""
    return _query_version("nvfatbin", "nvFatbinVersion")


def _query_version(name: str, function: str) -> Version:
    """Ask a library for its version, with a function that writes two integers and returns a status."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    with needed(f"cannot load {name}"), uninterrupted:
        status = getattr(ctypes.CDLL(libraries.load(name).path), function)(ctypes.byref(major), ctypes.byref(minor))
        if status:
            raise RuntimeError(f"{function} returned {status}")
    return Version(major.value, minor.value)


def build_id(path: str) -> str:
    """Return an identifier of a library's or program's build, wherever it is.

    The linker's build id (ELF note ``NT_GNU_BUILD_ID``), near the beginning or the end, or else its SHA-256.
    """
    with Path(path).open("rb") as file:
        for place in (0, max(0, Path(path).stat().st_size - _PART)):
            file.seek(place)
            if note := _BUILD_ID.search(file.read(_PART)):
                return note[1].hex()
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


# Component of cuda.pathfinder → a header of it, and where CUDA 13's and CUDA 12's packages have it, below ``nvidia/``.
_HEADERS = {
    "cccl": ("cuda/std/version", ("cu13/include/cccl", "cuda_cccl/include")),
    "cudart": ("cuda_runtime.h", ("cu13/include", "cuda_runtime/include")),
}


def _find_headers(component: str) -> str | None:
    header, directories = _HEADERS[component]
    packaged = libraries.find_packaged(*(f"{each}/{header}" for each in directories))
    found: str | None = libraries.find_nvidia_header_directory(component) if packaged is None else None
    return packaged.removesuffix(f"/{header}") if packaged else found


@cache
def header_roots() -> tuple[Path, ...]:
    """Return the directories of the toolkit's and CCCL's headers, in search order.

    Raises:
        ToolchainError: If the headers are of another CUDA major than NVRTC, as happens where a package is missing and
            another toolkit is installed.
    """
    roots = [Path(directory) for directory in map(_find_headers, _HEADERS) if directory]
    # CUDA 12's wheels keep crt/ and cuRAND apart. Only a sibling counts: another toolkit's would not fit.
    beside = [root.parent.parent / name / "include" for root in roots for name in ("cuda_nvcc", "curand")]
    roots += [directory for directory in beside if directory.is_dir()]
    compiler = nvrtc_version()
    for root in roots:
        version = _headers_version(root)
        if version is not None and version.major != compiler.major:
            raise ToolchainError(
                f"the CUDA headers are of {version}, NVRTC of {compiler}",
                code="toolchain-mixed",
                where=str(root),
                hint=install_hint(),
            )
    return tuple(dict.fromkeys(roots))


def _headers_version(root: Path) -> Version | None:
    """Return the release of the runtime's headers in a directory (``CUDART_VERSION``: 1000 major + 10 minor)."""
    try:
        match = re.search(r"^#define\s+CUDART_VERSION\s+(\d+)", (root / "cuda_runtime_api.h").read_text("utf-8"), re.M)
    except (OSError, UnicodeDecodeError):
        return None
    return Version(int(match[1]) // 1000, int(match[1]) % 1000 // 10) if match else None


def find_binary(name: str) -> str | None:
    """Return the path of a toolkit program such as ``nvdisasm``; None if there is none."""
    packaged = libraries.find_packaged(f"cu13/bin/{name}", f"cuda_nvcc/bin/{name}")
    try:
        found: str | None = packaged or libraries.find_nvidia_binary_utility(name)
    except OSError:  # a directory that this user may not look into
        found = None
    return found or shutil.which(name)
