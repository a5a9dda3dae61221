"""Tables in device memory, which kernels read the addresses of their inputs from."""

import threading
from typing import Any

from jitlto.base.errors import LaunchError
from jitlto.cuda.device import allowed_in_captures
from jitlto.cuda.libraries import driver
from jitlto.frameworks.fusion import MOST_INPUTS

_SIZE = 16 * MOST_INPUTS  # bytes of a table, at least as many as a gather reads at once
_MOST_TABLES = 1 << 16


class Tables:
    """The tables of one device. A table is written once, before any work that is given its address.

    They lie in memory of their own and are written in a stream of their own, so that a captured graph neither allocates
    nor writes them; what a graph was given stays. Of 65,536 others (32 MB) the half that was asked for least recently
    is used again: whoever was given its address has launched by then, and all work is waited for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._captured: dict[bytes, int] = {}
        self._recent: dict[bytes, int] = {}  # the last ones behind
        self._free: list[int] = []
        self._stream: Any = None

    def find(self, data: bytes, is_captured: bool) -> int:
        """Return the address of a table; its device is the current one."""
        with self._lock:
            address = self._captured.get(data) or self._recent.pop(data, 0) or self._write(data, is_captured)
            (self._captured if is_captured or data in self._captured else self._recent)[data] = address
            return address

    def _write(self, data: bytes, is_captured: bool) -> int:
        with allowed_in_captures():
            if self._stream is None:
                self._stream = _call(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
            if not self._free and len(self._recent) >= _MOST_TABLES and not is_captured:
                _call(driver.cuCtxSynchronize)
                self._free = [self._recent.pop(old) for old in list(self._recent)[: _MOST_TABLES // 2]]
            address = self._free.pop() if self._free else int(_call(driver.cuMemAlloc, _SIZE))
            _call(driver.cuMemcpyHtoDAsync, address, data, len(data), self._stream)
            _call(driver.cuStreamSynchronize, self._stream)
            return address


def _call(function: Any, *args: Any) -> Any:
    status, *results = function(*args)
    if status:
        what = f"{function.__name__} failed: {status.name}"
        raise LaunchError(what, code="launch-failed", where="a table of a kernel's inputs", hint="free device memory")
    return results[0] if results else None
