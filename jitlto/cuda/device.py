"""The current device. The only place that asks the driver before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from jitlto.base.errors import NoDeviceError, ToolchainError
from jitlto.base.uninterrupted import uninterrupted
from jitlto.cuda import libraries

if TYPE_CHECKING:
    from jitlto.base.versions import Architecture
    from jitlto.cuda.libraries import Device


#: Whether this process, or the one that it was forked from, has used CUDA through jitlto.
is_used = False
#: Whether this process was forked from one that had used CUDA: no function of the driver may be called.
is_forked = False
_is_ready = False  # there is a device
_is_uniform = False  # all devices are of one architecture


def current() -> Device:
    """Return the device of the calling thread's context; without a context, make the default device's current.

    Raises:
        NoDeviceError: As :func:`ensure_context`.
    """
    ensure_context()
    return libraries.Device()


def ensure_context() -> None:
    """Let the calling thread have a context: without one, make the default device's current.

    Raises:
        NoDeviceError: If there is no driver or no device. (Without this probe ``cuda.core`` misleads once and then
            deadlocks.)
    """
    global is_used, _is_ready
    if is_forked:
        raise_forked_error()
    is_used = True
    try:
        if not _is_ready:
            with uninterrupted:
                libraries.Device(0)
            _is_ready = True
        status, _ = libraries.driver.cuCtxGetDevice()
        if status:
            with uninterrupted:
                libraries.Device().set_current()
    except ToolchainError:
        raise
    # cuda.core raises its own CUDAError, a RuntimeError, or an ImportError, by what is missing.
    except Exception as error:  # noqa: BLE001
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        if "driver library" in reason:
            reason = "the NVIDIA driver (libcuda) was not found"
        raise NoDeviceError(
            f"no usable CUDA device: {reason}",
            hint="launching and tuning need an NVIDIA driver and a GPU; planning and linking do not: "
            "family.plan(arch='sm_90', ...).link(), or --arch sm_90",
        ) from None  # the libraries' own errors add nothing


def raise_forked_error(*_: object) -> NoReturn:
    """Raise the error of a process that was forked after CUDA was used.

    Raises:
        NoDeviceError: Always.
    """
    raise NoDeviceError(
        "this process was forked after CUDA was used, which CUDA does not support",
        code="no-device-forked",
        hint="start processes by spawn or forkserver, or fork before the first launch; planning and linking still work",
    )


@contextmanager
def allowed_in_captures() -> Iterator[None]:
    """Allow this thread to load code and make graphs while a stream is being captured: that is not work in a stream."""
    driver = libraries.driver
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    with uninterrupted:
        status, before = driver.cuThreadExchangeStreamCaptureMode(relaxed)
        try:
            yield
        finally:
            if status == driver.CUresult.CUDA_SUCCESS:
                driver.cuThreadExchangeStreamCaptureMode(before)


def kind() -> int:
    """Return 0 if all devices are of one architecture, whichever is the current one, else a number of its architecture.

    Raises:
        NoDeviceError: As :func:`current`.
    """
    global _is_uniform
    if _is_uniform:
        return 0
    major, minor = current().compute_capability
    _is_uniform = len({other.compute_capability for other in libraries.Device.get_all_devices()}) == 1
    return 0 if _is_uniform else int(major * 10 + minor)


def _after_fork() -> None:
    global is_forked, _is_uniform
    is_forked, _is_uniform = is_used, False  # none of the devices may be used


def architecture() -> Architecture:
    """Return the current device's architecture."""
    from jitlto.base.versions import Architecture

    major, minor = current().compute_capability
    return Architecture(major * 10 + minor)


os.register_at_fork(after_in_child=_after_fork)
