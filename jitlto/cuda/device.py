"""The current device, and streams of any library. The only place that asks the driver before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from jitlto.base.errors import LaunchError, NoDeviceError, ToolchainError
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
_is_uniform = False  # all devices are of one kind
# The attributes of CuPy, PyTorch and Numba that hold a stream's handle, for versions without __cuda_stream__.
_HANDLES = ("ptr", "cuda_stream", "handle")


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


def load_function(kernel: int) -> tuple[int, str]:
    """Return the handle of a kernel in the current context, a ``CUfunction``; 0 and why if it is not to be loaded."""
    with allowed_in_captures():
        status, function = libraries.driver.cuKernelGetFunction(kernel)
    return (0, status.name) if status else (int(function), "")


def place() -> int:
    """Return 0 if all devices are of one kind, so that the current one does not matter, else a number of that.

    Raises:
        NoDeviceError: As :func:`current`.
    """
    global _is_uniform
    if _is_uniform:
        return 0
    ordinal = current().device_id
    _is_uniform = len({_kind(int(each.device_id)) for each in libraries.Device.get_all_devices()}) == 1
    return 0 if _is_uniform else int(ordinal) + 1


def current_kind() -> str:
    """Return the kind of the current device, as wisdom knows it: what of it decides how fast kernels are.

    Raises:
        NoDeviceError: As :func:`current`.
    """
    return _kind(current().device_id)


@cache
def _kind(ordinal: int) -> str:
    found = libraries.Device(ordinal)
    major, minor = found.compute_capability
    clock, count = found.properties.memory_clock_rate, found.properties.multiprocessor_count
    return f"{found.name} (sm_{major}{minor}, {count} SMs, memory at {clock // 1000} MHz)"


def stream_handle(stream: Any) -> int:
    """Return the handle of a stream, which a launch passes to the driver.

    Args:
        stream (object): A ``cuda.core`` stream or graph builder, an object with ``__cuda_stream__``, a stream of CuPy,
            PyTorch or Numba, or a stream handle as an int (1 is the legacy default stream, 2 the per-thread default
            stream); None or 0 for the device's default stream.

    Raises:
        LaunchError: If it is no stream, or one of ``cuda.core`` that is closed.
        NoDeviceError: If there is no device.
    """
    if getattr(stream, "is_closed", False) and is_own(stream):
        raise LaunchError("the stream is closed", code="launch-failed", hint="pass an open stream")
    handle = 0 if stream is None else stream if type(stream) is int else _read_handle(stream)
    if handle:
        return handle
    return int(current().default_stream.__cuda_stream__()[1])


def is_capturing(handle: int) -> bool:
    """Return whether a stream is being captured, or cannot be asked while another capture forbids it."""
    return any(libraries.driver.cuStreamIsCapturing(handle))  # the status, and whether it is


def is_own(stream: object) -> bool:
    """Return whether a stream is one of ``cuda.core``, which its owner may close."""
    return type(stream).__module__.partition(".")[0] == "cuda"


def _read_handle(stream: Any) -> int:
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])  # behind a version
    for name in _HANDLES:
        handle = getattr(stream, name, None)
        if handle is not None:
            return int(getattr(handle, "value", handle) or 0)
    hint = "pass a stream, its handle, or None for the default stream"
    raise LaunchError(f"{type(stream).__name__} is not a stream", code="launch-failed", hint=hint)


def _after_fork() -> None:
    global is_forked, _is_uniform
    is_forked, _is_uniform = is_used, False  # none of the devices may be used


def architecture() -> Architecture:
    """Return the current device's architecture."""
    from jitlto.base.versions import Architecture

    major, minor = current().compute_capability
    return Architecture(major * 10 + minor)


os.register_at_fork(after_in_child=_after_fork)
