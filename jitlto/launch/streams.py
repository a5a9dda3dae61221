"""Conversion of other libraries' streams for ``cuda.core.launch``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from jitlto.cuda import device
from jitlto.cuda.libraries import Stream

# The attributes of CuPy, PyTorch and Numba that hold a stream's handle, for versions without __cuda_stream__.
_HANDLES = ("ptr", "cuda_stream", "handle")
_MOST_STREAMS = 1024  # bounds the memory of programs that create streams all the time
# Cheap ways to read a stream's handle, by library: Python code for a stream called {0}, and the same as a function.
_READS: dict[str, tuple[tuple[str, Callable[[Any], Any]], ...]] = {
    "cupy": (("{0}.ptr", lambda stream: stream.ptr),),
    "torch": (("{0}.cuda_stream", lambda stream: stream.cuda_stream),),
    "numba": (
        ("{0}.handle.value", lambda stream: stream.handle.value),
        ("int({0}.handle)", lambda stream: int(stream.handle)),
    ),
}
#: Of some of them: code for what of ``stream`` keeps its handle for life, and for the handle of that, ``kept``.
LASTING = {
    "{0}.ptr": ("stream", "kept.ptr"),
    "{0}.cuda_stream": ("stream", "kept.cuda_stream"),
    "int({0}.handle)": ("stream.handle", "int(kept)"),
}
_PROTOCOL = ("{0}.__cuda_stream__()[1]", lambda stream: stream.__cuda_stream__()[1])

#: Handle → cuda.core's stream for it; without 0, which means the default stream. A launch reads nothing but the handle
#: from such a stream, so that it does not matter if the driver gives the handle to another stream later.
streams_by_handle: dict[int, Stream] = {}
#: The default stream, where this thread has been seen to have a context.
thread = threading.local()


def as_stream(stream: Any, *, reusable: bool = True) -> Any:
    """Convert a stream of a different library, a handle or None for ``cuda.core``; return other objects unchanged.

    Args:
        stream (object): A ``cuda.core`` stream or graph builder, an object with ``__cuda_stream__``, a stream of CuPy,
            PyTorch or Numba, or a stream handle as an int (1 is the legacy default stream, 2 the per-thread default
            stream); None or 0 for the device's default stream.
        reusable: Whether the result may be used for other streams with this handle. False where ``cuda.core`` asks it
            for its device, which it remembers: cooperative launches and clusters.
    """
    if stream is None:
        return default_stream()
    handle = stream if type(stream) is int else read_handle(stream)
    if handle is None:
        return stream
    if handle == 0:
        return default_stream()
    if not reusable:
        return Stream.from_handle(handle)
    known = streams_by_handle.get(handle)
    if known is None:
        if len(streams_by_handle) >= _MOST_STREAMS:
            streams_by_handle.clear()
        known = streams_by_handle[handle] = Stream.from_handle(handle)
    return known


def default_stream() -> Any:
    """Return the default stream, after a context was made current for this thread if it had none."""
    try:
        return thread.default
    except AttributeError:
        pass  # so that an error raised below has no context
    thread.default = default = device.current().default_stream
    return default


def read_handle(stream: Any) -> int | None:
    """Return the handle of a stream of a different library; None for any other object."""
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


def handle_code(stream: Any) -> str | None:
    """Return Python code for the handle of streams of this type, called ``{0}``; None if their handles are not ints."""
    handle = read_handle(stream)
    if handle is None:
        return None
    library = type(stream).__module__.partition(".")[0]
    for code, read in (*_READS.get(library, ()), _PROTOCOL):
        try:
            found = read(stream)
        except Exception:  # noqa: BLE001, S112 - not in this version of the library
            continue
        # A stream that is not created yet has no handle, in CuPy's and Numba's words 0 and None.
        if found == handle and type(found) is int:
            return code
    return None
