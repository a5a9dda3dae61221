"""The current device. The only place that asks the driver before anything is loaded."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from jitlto.errors import NoDeviceError

if TYPE_CHECKING:
    from cuda.core import Device

    from jitlto.model.versions import Architecture


FORKED = "this process was forked after CUDA was used, which CUDA does not survive"
FORKED_HINT = "start processes by spawn or forkserver, or fork before the first launch; planning and linking still work"
_user: int | None = None  # the process that used CUDA first


def current() -> Device:
    """The device of the calling thread's context; where there is no context yet, the default device's is made current.

    Raises
    ------
    NoDeviceError
        If there is no driver or no device. (Without this probe ``cuda.core`` misleads once and then blocks for ever.)
    """
    global _user
    if _user is None:
        _user = os.getpid()
    elif _user != os.getpid():
        raise NoDeviceError(FORKED, hint=FORKED_HINT)
    try:
        from cuda.bindings import driver
        from cuda.core import Device

        Device(0)
        device = Device()
        status, context = driver.cuCtxGetCurrent()
        if int(status) or not int(context):
            device.set_current()
    # cuda.core raises its own CUDAError, a RuntimeError, or an ImportError, by what is missing.
    except Exception as error:  # noqa: BLE001
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        if "driver library" in reason:
            reason = "the NVIDIA driver (libcuda) is not found"
        raise NoDeviceError(
            f"no CUDA device can be used: {reason}",
            hint="launching needs an NVIDIA driver and a GPU; to plan and link without: arch='sm_90', --arch sm_90",
        ) from None  # the libraries' own errors tell nothing more
    return device


_thread = threading.local()


def kind() -> int:
    """A number that current devices of one architecture have in common, for less than asking the driver costs.

    Raises
    ------
    NoDeviceError
        As :func:`current`.
    """
    try:
        return _thread.kind  # type: ignore[no-any-return]
    except AttributeError:
        pass  # outside of which an error that is raised stands alone
    return _kind()


def _kind() -> int:
    from cuda.core import Device

    major, minor = current().compute_capability
    if len({other.compute_capability for other in Device.get_all_devices()}) == 1:
        _thread.kind = 0  # of which there is one: the thread's context does not matter
        return 0
    return int(major * 10 + minor)


def _after_fork() -> None:
    global _thread
    _thread = threading.local()


os.register_at_fork(after_in_child=_after_fork)


def ordinal() -> int:
    """The current device's number."""
    return int(current().device_id)


def architecture() -> Architecture:
    """The current device's architecture."""
    from jitlto.model.versions import Architecture

    major, minor = current().compute_capability
    return Architecture(major * 10 + minor)
