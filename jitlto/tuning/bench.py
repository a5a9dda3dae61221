"""Times of launches on the current device, by CUDA events around a graph of them."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from jitlto.base.errors import LaunchError
from jitlto.cuda import device, libraries
from jitlto.tuning.search import Launch

# Seconds between two events: the resolution is half a microsecond, and a graph begins some five after the first event,
# more or less by how busy the host is.
_LONG_ENOUGH = 1e-3
_MOST_LAUNCHES = 256
_SLOW = 10e-3  # seconds: what loading code adds to a first launch is little beside it


class Bench:
    """The current device as what times launches, and reads and writes their results. Close it when done.

    Launches are repeated in a CUDA graph, so that the host's time is not counted; each finds in the L2 what the one
    before left there.

    Raises:
        NoDeviceError: If there is no device.
    """

    def __init__(self) -> None:
        device.current()
        self._driver = driver = libraries.driver
        # By the driver: cuda.core makes streams only in a context that cuda.core made current.
        self._handle = self._check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
        #: The stream in which everything is launched.
        self.stream = libraries.Stream.from_handle(int(self._handle))
        self._events = [self._check(driver.cuEventCreate(0)) for _ in range(2)]
        self._graphs: dict[Launch, tuple[Any, int]] = {}  # with the number of launches in it
        self.synchronize()  # the data may have been prepared in other streams

    def close(self) -> None:
        """Free what it holds."""
        self.synchronize()
        for graph, _ in self._graphs.values():
            self._driver.cuGraphExecDestroy(graph)
        self._graphs.clear()
        self._driver.cuStreamDestroy(self._handle)

    def synchronize(self) -> None:
        """Wait for all work of the device.

        Raises:
            LaunchError: If a kernel failed.
        """
        self._check(self._driver.cuCtxSynchronize())

    def time(self, launch: Launch) -> float:
        """Return the seconds that one launch takes on the device."""
        if launch not in self._graphs:
            first = self._between(launch)  # it may load code
            if first > _SLOW:
                return first
            once = max(self._between(launch), 1e-7)
            count = max(1, min(_MOST_LAUNCHES, round(_LONG_ENOUGH / once)))
            self._graphs[launch] = (self._captured(launch, count), count)
        graph, count = self._graphs[launch]
        return self._between(lambda: self._check(self._driver.cuGraphLaunch(graph, self._handle))) / count

    def read(self, array: Any) -> bytes:
        """Return the bytes of a device array, after all work is done."""
        self.synchronize()
        address, size = _extent(array)
        data = bytearray(size)
        if size:
            place = ctypes.addressof(ctypes.c_char.from_buffer(data))
            self._check(self._driver.cuMemcpyDtoH(place, address, size))
        return bytes(data)

    def write(self, array: Any, data: bytes) -> None:
        """Set the bytes of a device array, after all work is done."""
        self.synchronize()
        address, size = _extent(array)
        if size:
            self._check(self._driver.cuMemcpyHtoD(address, data, size))
            self.synchronize()

    def _between(self, launch: Launch) -> float:
        begin, end = self._events
        self._check(self._driver.cuEventRecord(begin, self._handle))
        launch()
        self._check(self._driver.cuEventRecord(end, self._handle))
        self._check(self._driver.cuEventSynchronize(end))
        return float(self._check(self._driver.cuEventElapsedTime(begin, end))) / 1000

    def _captured(self, launch: Launch, count: int) -> Any:
        mode = self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._check(self._driver.cuStreamBeginCapture(self._handle, mode))
        try:
            for _ in range(count):
                launch()
        finally:
            status, graph = self._driver.cuStreamEndCapture(self._handle)
        self._check((status,))
        made = self._check(self._driver.cuGraphInstantiate(graph, 0))
        self._driver.cuGraphDestroy(graph)
        return made

    def _check(self, answer: Any) -> Any:
        status, *values = answer
        if int(status):
            name = getattr(status, "name", str(status))
            raise LaunchError(f"a launch or a copy failed while timing: {name}", code="launch-timing")
        return values[0] if values else None


def _extent(array: Any) -> tuple[int, int]:
    """Return the address of a contiguous device array, and its size in bytes."""
    described = array.__cuda_array_interface__
    if described.get("strides") is not None:
        raise TypeError("an array of results must be contiguous")
    return int(described["data"][0]), prod(described["shape"]) * int(described["typestr"][2:])
