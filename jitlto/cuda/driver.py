"""The installed driver: its CUDA version, and why it rejects a kernel."""

from contextlib import suppress

from jitlto.base.errors import JitltoError
from jitlto.base.versions import Version
from jitlto.cuda import nvjitlink, toolkit


def cuda_version() -> Version | None:
    """Return the newest CUDA that the driver supports; None without a driver."""
    try:
        driver = toolkit.bindings("driver")
        status, number = driver.cuDriverGetVersion()  # 1000 major + 10 minor
    except (JitltoError, RuntimeError):  # cuda.bindings' own where libcuda is missing
        return None
    return None if int(status) or not number else Version(number // 1000, number % 1000 // 10)


def explain_load_failure(target: str, error: Exception) -> tuple[str, str]:
    """Return why the driver cannot load a kernel, as far as versions tell, and a hint.

    Args:
        target: The architecture that the kernel was linked for, e.g. ``sm_90``.
        error: What the driver reported.
    """
    what = f"the driver cannot load the kernel: {error}"
    cuda, refusal = cuda_version(), None
    with suppress(JitltoError):
        refusal = find_incompatibility(cuda, nvjitlink.version()) if cuda else None
    why, hint = refusal or ("", f"it was linked for {target}; `jitlto doctor` shows the device")
    return f"{what}: {why}" if why else what, hint


def find_incompatibility(driver: Version, linker: Version) -> tuple[str, str] | None:
    """Return why a driver does not load a cubin, and the remedy; None if it does as far as versions tell.

    It loads one of the same major, older or newer (minor-version compatibility), and of an earlier one (NVIDIA's «CUDA
    Compatibility»). For the driver of a ``cuda-compat`` package its own version counts, not the kernel module's.

    Args:
        driver: The newest CUDA release that the driver supports (``cuDriverGetVersion``).
        linker: The nvJitLink that made the cubin.
    """
    if linker.major > driver.major:
        why = f"a driver for CUDA {driver} does not load a cubin made by nvJitLink {linker}"
        package = f"the package cuda-compat-{linker.major}-{linker.minor}"
        other = f", or link with nvJitLink {driver.major}.x and fragments built for it (jitlto[cu{driver.major}])"
        remedy = f"install a driver for CUDA {linker.major}.0 or newer, or {package}"
        return why, remedy + (other if driver.major >= 12 else "")
    return None
