"""The installed driver: its CUDA version, whether it runs in forward compatibility, and why it rejects a kernel.

A driver has two parts: ``libcuda``, in user mode, and the kernel module. NVIDIA's packages ``cuda-compat`` bring a
newer ``libcuda`` to an older module ("CUDA Compatibility", forward compatibility). Both are named by the driver's
release: ``libcuda.so.580.65.06``, and the first line of ``/proc/driver/nvidia/version``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from jitlto.base.errors import JitltoError
from jitlto.base.versions import Version
from jitlto.cuda import nvjitlink, toolkit
from jitlto.cuda.compatibility import newest_ptx_isa, oldest_toolkit
from jitlto.cuda.ptx import parse_ptx

_MAPS = Path("/proc/self/maps")
_MODULE = (Path("/proc/driver/nvidia/version"), Path("/sys/module/nvidia/version"))
_RELEASE = r"\d{3,}\.\d+(?:\.\d+)?"


class Forward(StrEnum):
    """Relation of ``libcuda`` and the kernel module."""

    #: Of one release, as a driver's installation leaves them.
    NONE = "none"
    #: A newer ``libcuda`` over an older module: forward compatibility.
    ACTIVE = "active"
    #: A ``libcuda`` older than the module, as where the driver was updated and a compatibility package stayed. CUDA
    #: rejects that (``CUDA_ERROR_SYSTEM_DRIVER_MISMATCH``).
    MISMATCH = "mismatch"


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver; what was not found of it is None.

    Args:
        cuda: The newest CUDA that it supports.
        library: Its ``libcuda``.
        module: The kernel module's release, e.g. ``580.65.06``.
    """

    cuda: Version | None
    library: Path | None
    module: str | None

    @property
    def release(self) -> str | None:
        """Release of ``libcuda``; None if its file is not named by it."""
        match = re.search(rf"libcuda\.so\.({_RELEASE})$", str(self.library))
        return match[1] if match else None

    @property
    def is_packaged(self) -> bool:
        """True if ``libcuda`` is where packages put it: in ``compat`` (deb, rpm) or ``cuda-compat`` (conda)."""
        return self.library is not None and any(part in ("compat", "cuda-compat") for part in self.library.parts)

    @property
    def forward(self) -> Forward:
        """Relation of ``libcuda`` and the kernel module, by their releases and places."""
        if self.release and self.module:
            ours, theirs = _numbers(self.release), _numbers(self.module)
            return Forward.ACTIVE if ours > theirs else Forward.MISMATCH if ours < theirs else Forward.NONE
        return Forward.ACTIVE if self.is_packaged else Forward.NONE


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def cuda_version() -> Version | None:
    """Return the newest CUDA that the driver supports; None without a driver."""
    try:
        driver = toolkit.bindings("driver")
        status, number = driver.cuDriverGetVersion()  # 1000 major + 10 minor
    except (JitltoError, RuntimeError):  # cuda.bindings' own where libcuda is missing
        return None
    return None if int(status) or not number else Version(number // 1000, number % 1000 // 10)


def find_driver() -> Driver | None:
    """Return the driver that this process loads; None if there is none."""
    cuda = cuda_version()
    return cuda and Driver(cuda, find_loaded_library(_MAPS), read_module_release(_MODULE))


def find_loaded_library(maps: Path) -> Path | None:
    """Return the ``libcuda`` among the files that a process has mapped, links followed.

    Args:
        maps: In the form of ``/proc/PID/maps``.
    """
    try:
        lines = maps.read_text("utf-8", "replace")
    except OSError:
        return None
    match = re.search(r"(/\S.*/libcuda\.so[.\d]*)$", lines, re.M)
    return Path(match[1]).resolve() if match else None


def read_module_release(files: Iterable[Path]) -> str | None:
    """Return the kernel module's release, from the first of some files that contains it.

    Args:
        files: In the form of ``/proc/driver/nvidia/version`` or of ``/sys/module/nvidia/version``.
    """
    for file in files:
        try:
            text = file.read_text("utf-8", "replace")
        except OSError:
            continue
        # After these words: a later line has a compiler's version.
        match = re.search(rf"Kernel Module\b.*?\s({_RELEASE})\s", text) or re.match(rf"({_RELEASE})\s*$", text)
        if match:
            return match[1]
    return None


def explain_load_failure(target: str, code: bytes, error: Exception) -> tuple[str, str]:
    """Return why the driver cannot load a kernel, as far as versions tell, and a hint.

    Args:
        target: The architecture that the kernel was linked for, e.g. ``sm_90``; ``compute_90`` for PTX.
        code: The cubin or PTX.
        error: What the driver reported.
    """
    what = f"the driver cannot load the kernel: {error}"
    hint = f"it was linked for {target}; `jitlto doctor` shows the device"
    try:
        isa = parse_ptx(code.decode()).isa if target.startswith("compute_") else None
        linker, cuda = nvjitlink.version(), cuda_version()
        refusal = cuda and find_incompatibility(cuda, linker, isa)
    except JitltoError:
        refusal = None
    return (f"{what}: {refusal[0]}", refusal[1]) if refusal else (what, hint)


def find_incompatibility(driver: Version, linker: Version, isa: Version | None) -> tuple[str, str] | None:
    """Return why a driver does not load linked code, and the remedy; None if it does as far as versions tell.

    It loads a cubin of the same major, older or newer (minor-version compatibility), and of an earlier one; PTX is
    outside minor-version compatibility (NVIDIA's «CUDA Compatibility»). For the driver of a ``cuda-compat`` package its
    own version counts, not the kernel module's.

    Args:
        driver: The newest CUDA release that the driver supports (``cuDriverGetVersion``).
        linker: The nvJitLink that made the code.
        isa: The ISA version of PTX, None for a cubin.
    """
    if isa is not None and isa > newest_ptx_isa(driver):
        needed = oldest_toolkit(isa)
        why = f"a driver for CUDA {driver} compiles PTX up to {newest_ptx_isa(driver)}, and this is PTX {isa}"
        package = f"the package cuda-compat-{needed.major}-{needed.minor}"
        other = f"make the PTX with CUDA {driver} or older"
        return why, f"install a driver for CUDA {needed} or newer, or {package}, or {other}"
    if isa is None and linker.major > driver.major:
        why = f"a driver for CUDA {driver} does not load a cubin made by nvJitLink {linker}"
        package = f"the package cuda-compat-{linker.major}-{linker.minor}"
        other = f", or link with nvJitLink {driver.major}.x and fragments built for it (jitlto[cu{driver.major}])"
        remedy = f"install a driver for CUDA {linker.major}.0 or newer, or {package}"
        return why, remedy + (other if driver.major >= 12 else "")
    return None
