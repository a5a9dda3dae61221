"""Tables of words in device memory, which kernels read the addresses of their inputs from."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from jitlto.base.errors import LaunchError
from jitlto.cuda.libraries import driver
from jitlto.frameworks.parts import MOST_WORDS

_BLOCK = 512  # tables that are allocated at once
_MOST_TABLES = 1 << 16


class Tables:
    """The tables of one device. A table is written once, before any work that is given its address.

    They lie in memory of their own and are written in a stream of their own, so that a captured graph neither allocates
    nor writes them; what a graph was given stays. The memory of another is used again when 65,536 (16 MB) have followed
    that many: whoever was given its address has launched by then, and all work is waited for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[int, ...], int] = {}
        self._kept: set[int] = set()
        self._old: list[int] = []
        self._free: list[int] = []
        self._stream: Any = None

    def find(self, words: tuple[int, ...], is_captured: bool) -> int:
        """Return the address of a table; its device is the current one."""
        with self._lock:
            found = self._known.get(words)
            if found is None:
                found = _relaxed(self._add, words, is_captured)
            if is_captured:
                self._kept.add(found)
            return found

    def _add(self, words: tuple[int, ...], is_captured: bool) -> int:
        if self._stream is None:
            self._stream = _call(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        if not self._free and len(self._known) >= _MOST_TABLES and not is_captured:
            _call(driver.cuCtxSynchronize)
            self._free = [address for address in self._old if address not in self._kept]
            self._old, self._known = list(self._known.values()), {}
        if not self._free:
            first = int(_call(driver.cuMemAlloc, _BLOCK * MOST_WORDS * 8))
            self._free = [first + 8 * MOST_WORDS * number for number in range(_BLOCK)]
        address = self._free.pop()
        data = np.array(words, np.uint64)
        _call(driver.cuMemcpyHtoDAsync, address, data, data.nbytes, self._stream)
        _call(driver.cuStreamSynchronize, self._stream)
        self._known[words] = address
        return address


def _relaxed(function: Callable[..., int], *args: Any) -> int:
    """Call a function that allocates and waits, which a capture in this thread would otherwise forbid."""
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = _call(driver.cuThreadExchangeStreamCaptureMode, mode)
    try:
        return function(*args)
    finally:
        _call(driver.cuThreadExchangeStreamCaptureMode, before)


def _call(function: Any, *args: Any) -> Any:
    status, *results = function(*args)
    if status:
        what = f"{function.__name__} failed: {status.name}"
        raise LaunchError(what, code="launch-failed", where="a table of a kernel's inputs", hint="free device memory")
    return results[0] if results else None
