"""The current device. The only place that asks the driver before anything is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitlto import toolkit
from jitlto.errors import NoDeviceError
from jitlto.versions import Architecture

if TYPE_CHECKING:
    from cuda.core import Device


def current() -> Device:
    """The device of the calling thread's context; where there is no context yet, the default device's is made current.

    Raises
    ------
    NoDeviceError
        If there is no driver or no device. (Without this probe ``cuda.core`` misleads once and then blocks for ever.)
    """
    try:
        from cuda.core import Device

        Device(0)
        device = Device()
        driver = toolkit.bindings("driver")
        status, context = driver.cuCtxGetCurrent()
        if int(status) or not int(context):
            device.set_current()
    # cuda.core raises its own CUDAError, a RuntimeError, or an ImportError, by what is missing.
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        if "driver library" in reason:
            reason = "the NVIDIA driver (libcuda) is not found"
        raise NoDeviceError(
            f"no CUDA device can be used: {reason}",
            hint="launching needs an NVIDIA driver and a GPU; to plan and link without: arch='sm_90', --arch sm_90",
        ) from error
    return device


def ordinal() -> int:
    """The current device's number."""
    return int(current().device_id)


def architecture() -> Architecture:
    """The current device's architecture."""
    major, minor = current().compute_capability
    return Architecture(major * 10 + minor)
