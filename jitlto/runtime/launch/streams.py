"""Conversion of other libraries' streams for ``cuda.core.launch``."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from cuda.core import Stream

from jitlto.cuda import device

# The attributes of CuPy, PyTorch and Numba that hold a stream's handle, for versions without __cuda_stream__.
_HANDLES = ("ptr", "cuda_stream", "handle")
_known: weakref.WeakKeyDictionary[Any, Stream] = weakref.WeakKeyDictionary()


def as_stream(stream: Any) -> Any:
    """Convert a stream of a different library, a handle or None for ``cuda.core``; return other objects unchanged.

    Args:
        stream (object): A ``cuda.core`` stream or graph builder, an object with ``__cuda_stream__``, a stream of CuPy,
            PyTorch or Numba, or a stream handle as an int (1 is the legacy default stream, 2 the per-thread default
            stream); None or 0 for the device's default stream.
    """
    if stream is None or (type(stream) is int and stream == 0):
        return device.current().default_stream
    if type(stream) is int:
        return Stream.from_handle(stream)
    try:
        return _known[stream]
    except (KeyError, TypeError):  # TypeError: the object cannot be hashed or weakly referenced
        pass
    handle = _handle(stream)
    if handle is None:
        return stream
    if handle == 0:
        return device.current().default_stream
    converted = Stream.from_handle(handle)
    with contextlib.suppress(TypeError):
        _known[stream] = converted
    return converted


def _handle(stream: Any) -> int | None:
    protocol = getattr(stream, "__cuda_stream__", None)
    if type(stream).__module__.partition(".")[0] == "cuda":
        return None  # a stream or graph builder of cuda.core itself
    if protocol is not None:
        # The protocol returns a version and the handle.
        return int(protocol()[1])
    for name in _HANDLES:
        handle = getattr(stream, name, None)
        if handle is not None:
            return int(getattr(handle, "value", handle) or 0)
    return None
