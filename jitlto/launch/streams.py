"""The handles of streams, whatever library they are of."""

from typing import Any

from jitlto.base.errors import LaunchError
from jitlto.cuda import device

# The attributes of CuPy, PyTorch and Numba that hold a stream's handle, for versions without __cuda_stream__.
_HANDLES = ("ptr", "cuda_stream", "handle")


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
    return int(device.current().default_stream.__cuda_stream__()[1])


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
