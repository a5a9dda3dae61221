"""Streams of any library, as ``cuda.core.launch`` takes them."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from cuda.core import Stream

from jitlto.cuda import device

# How libraries call the handle of a stream: CuPy, PyTorch, Numba; for versions that do not speak __cuda_stream__.
_HANDLES = ("ptr", "cuda_stream", "handle")
_known: weakref.WeakKeyDictionary[Any, Stream] = weakref.WeakKeyDictionary()


def as_stream(stream: Any) -> Any:
    """A stream of another library, a handle or None, as ``cuda.core`` takes it; what it may take is left to it.

    Parameters
    ----------
    stream : object
        A ``cuda.core`` stream or graph builder, anything with ``__cuda_stream__``, a stream of CuPy, PyTorch or Numba,
        a stream handle as an int (1 is the legacy default stream, 2 the per-thread one); None or 0 for the device's
        default stream.
    """
    if stream is None or (type(stream) is int and stream == 0):
        return device.current().default_stream
    if type(stream) is int:
        return Stream.from_handle(stream)
    try:
        return _known[stream]
    except (KeyError, TypeError):  # TypeError: nothing that a weak reference can be made to
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
        return None  # cuda.core's own: streams and graph builders
    if protocol is not None:
        # The second field of the protocol is the handle; cuda.core wants foreign streams converted outright.
        return int(protocol()[1])
    for name in _HANDLES:
        handle = getattr(stream, name, None)
        if handle is not None:
            return int(getattr(handle, "value", handle) or 0)
    return None
