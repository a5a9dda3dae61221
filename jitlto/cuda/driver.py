"""The driver at hand: for which CUDA it is, whether it is a forward-compatibility package's, and what it refuses.

A driver has two halves: ``libcuda``, in user mode, and the kernel module. NVIDIA's packages ``cuda-compat`` bring a
newer ``libcuda`` to an older module («CUDA Compatibility», forward compatibility). Both carry the driver's release in
what they are called: ``libcuda.so.580.65.06``, and the first line of ``/proc/driver/nvidia/version``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from jitlto.cuda import toolkit
from jitlto.errors import JitltoError
from jitlto.model import compatibility
from jitlto.model.ptx import parse_ptx
from jitlto.model.versions import Version

_MAPS = Path("/proc/self/maps")
_MODULE = (Path("/proc/driver/nvidia/version"), Path("/sys/module/nvidia/version"))
_RELEASE = r"\d{3,}\.\d+(?:\.\d+)?"


class Forward(StrEnum):
    """How ``libcuda`` and the kernel module stand to each other."""

    #: Of one release, as a driver's installation leaves them.
    NONE = "none"
    #: A newer ``libcuda`` over an older module: forward compatibility.
    ACTIVE = "active"
    #: A compatibility package's ``libcuda`` of the module's own release: it does nothing.
    NEEDLESS = "needless"
    #: A ``libcuda`` older than the module, as where the driver was updated and a compatibility package stayed. CUDA
    #: refuses that (``CUDA_ERROR_SYSTEM_DRIVER_MISMATCH``).
    MISMATCH = "mismatch"


@dataclass(frozen=True, slots=True)
class Driver:
    """What was found of a driver; None for what was not.

    Parameters
    ----------
    cuda : Version or None
        The newest CUDA that it is for.
    library : Path or None
        Its ``libcuda``.
    module : str or None
        The kernel module's release, e.g. ``580.65.06``.
    """

    cuda: Version | None
    library: Path | None
    module: str | None

    @property
    def release(self) -> str | None:
        """The release of ``libcuda``; None if its file is not named by it."""
        match = re.search(rf"libcuda\.so\.({_RELEASE})$", str(self.library))
        return match[1] if match else None

    @property
    def packaged(self) -> bool:
        """Whether ``libcuda`` lies where packages put it: in ``compat`` (deb, rpm) or ``cuda-compat`` (conda)."""
        return self.library is not None and any(part in ("compat", "cuda-compat") for part in self.library.parts)

    @property
    def forward(self) -> Forward:
        """Whether it runs in forward compatibility."""
        if self.release and self.module:
            ours, theirs = _numbers(self.release), _numbers(self.module)
            if ours != theirs:
                return Forward.ACTIVE if ours > theirs else Forward.MISMATCH
            return Forward.NEEDLESS if self.packaged else Forward.NONE
        return Forward.ACTIVE if self.packaged else Forward.NONE


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def cuda_version() -> Version | None:
    """The newest CUDA that the driver is for (``cuDriverGetVersion``: 1000 major + 10 minor); None without a driver."""
    try:
        driver = toolkit.bindings("driver")
        status, number = driver.cuDriverGetVersion()
    except (JitltoError, RuntimeError):  # cuda.bindings' own where libcuda is missing
        return None
    return None if int(status) or not number else Version(number // 1000, number % 1000 // 10)


def at_hand() -> Driver | None:
    """The driver that this process loads; None if there is none."""
    cuda = cuda_version()
    return cuda and Driver(cuda, loaded_library(_MAPS), module_release(_MODULE))


def loaded_library(maps: Path) -> Path | None:
    """The ``libcuda`` among the files that a process has mapped, links followed.

    Parameters
    ----------
    maps : Path
        In the form of ``/proc/PID/maps``.
    """
    try:
        lines = maps.read_text("utf-8", "replace")
    except OSError:
        return None
    match = re.search(r"(/\S.*/libcuda\.so[.\d]*)$", lines, re.M)
    return Path(match[1]).resolve() if match else None


def module_release(files: Iterable[Path]) -> str | None:
    """The kernel module's release, from the first of some files that gives it.

    Parameters
    ----------
    files : iterable of Path
        In the form of ``/proc/driver/nvidia/version`` or of ``/sys/module/nvidia/version``.
    """
    for file in files:
        try:
            text = file.read_text("utf-8", "replace")
        except OSError:
            continue
        # After the words, for there is a compiler's version on a later line.
        match = re.search(rf"Kernel Module\b.*?\s({_RELEASE})\s", text) or re.match(rf"({_RELEASE})\s*$", text)
        if match:
            return match[1]
    return None


def explain_load_failure(target: str, code: bytes, error: Exception) -> tuple[str, str]:
    """Return why the driver cannot load a kernel, as far as versions tell, and a hint.

    Parameters
    ----------
    target : str
        The architecture that the kernel was linked for, e.g. ``sm_90``; ``compute_90`` for PTX.
    code : bytes
        The cubin or PTX.
    error : Exception
        What the driver reported.
    """
    what = f"the driver cannot load the kernel: {error}"
    hint = f"it was linked for {target}; `jitlto doctor` shows the device"
    try:
        isa = parse_ptx(code.decode()).isa if target.startswith("compute_") else None
        linker, cuda = toolkit.nvjitlink_version(), cuda_version()
        refusal = cuda and compatibility.find_incompatibility(cuda, linker, isa)
    except JitltoError:
        refusal = None
    return (f"{what}: {refusal.why}", refusal.remedy) if refusal else (what, hint)
