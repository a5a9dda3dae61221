"""How launches are timed, with a driver that only counts."""

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from jitlto.base.errors import LaunchError
from jitlto.cuda import device, libraries
from jitlto.tuning import bench as bench_module
from jitlto.tuning.bench import Bench
from tests.support.errors import raises

_MILLISECONDS = 0.05  # that a launch takes


class CountingDriver:
    """Stands for the driver: a clock that launches advance, and memory that is the host's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: Counter[str] = Counter()
        self.now = 0.0
        self.captured: int | None = None
        self.status = 0
        self._events: dict[object, float] = {}
        names = "cuEventCreate cuEventSynchronize cuCtxSynchronize cuGraphDestroy"
        monkeypatch.setattr(driver, "cuStreamCreate", self._counted("cuStreamCreate", lambda _: 7))
        for name in (*names.split(), "cuGraphExecDestroy", "cuStreamDestroy"):
            monkeypatch.setattr(driver, name, self._counted(name, lambda *_: object()))
        monkeypatch.setattr(
            driver, "cuEventRecord", lambda event, _: (self._events.__setitem__(event, self.now), (0,))[1]
        )
        monkeypatch.setattr(driver, "cuEventElapsedTime", lambda a, b: (self.status, self._events[b] - self._events[a]))
        monkeypatch.setattr(driver, "cuStreamBeginCapture", lambda *_: (setattr(self, "captured", 0), (0,))[1])
        monkeypatch.setattr(driver, "cuStreamEndCapture", self._end)
        monkeypatch.setattr(driver, "cuGraphInstantiate", lambda graph, _: (0, graph))
        monkeypatch.setattr(driver, "cuGraphLaunch", self._launch_graph)
        for name in ("cuMemcpyDtoH", "cuMemcpyHtoD"):
            monkeypatch.setattr(
                driver, name, self._counted(name, lambda to, source, size: ctypes.memmove(to, source, size))
            )
        properties = SimpleNamespace(memory_clock_rate=3201000, multiprocessor_count=132)
        self.device = SimpleNamespace(
            properties=properties,
            device_id=0,
            compute_capability=(9, 0),
            name="NVIDIA H200",
        )
        monkeypatch.setattr(device, "current", lambda: self.device)

    def launch(self) -> None:
        if self.captured is None:
            self.calls["launch"] += 1
            self.now += _MILLISECONDS
        else:
            self.captured += 1

    def _counted(self, name: str, act: Callable[..., object]) -> Callable[..., tuple[object, ...]]:
        def call(*arguments: Any) -> tuple[object, ...]:
            self.calls[name] += 1
            return (0, act(*arguments))

        return call

    def _end(self, _: object) -> tuple[int, int]:
        count, self.captured = self.captured, None
        assert count is not None
        return 0, count

    def _launch_graph(self, count: int, _: object) -> tuple[int]:
        self.calls["graph"] += 1
        self.now += count * _MILLISECONDS
        return (0,)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> CountingDriver:
    return CountingDriver(monkeypatch)


def test_a_launch_is_repeated_in_a_graph_that_is_made_once(counting: CountingDriver) -> None:
    with closing(Bench()) as bench:
        times = [bench.time(counting.launch) for _ in range(3)]
    assert times == pytest.approx([_MILLISECONDS / 1000] * 3)
    assert counting.calls["graph"] == 3
    assert counting.calls["launch"] == 2  # the first, and one to see how long it takes
    assert counting.calls["cuGraphExecDestroy"] == 1


def test_a_slow_launch_is_not_repeated(counting: CountingDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_module, "_SLOW", _MILLISECONDS / 2000)
    with closing(Bench()) as bench:
        assert [bench.time(counting.launch) for _ in range(3)] == pytest.approx([_MILLISECONDS / 1000] * 3)
    assert (counting.calls["launch"], counting.calls["graph"]) == (3, 0)


def test_what_the_driver_reports_is_an_error(counting: CountingDriver) -> None:
    counting.status = 700
    with closing(Bench()) as bench, raises(LaunchError, "launch-timing", "700"):
        bench.time(counting.launch)


def on_host(array: Any) -> Any:
    """An array of the host, as if it were on the device."""
    described = {"data": (array.ctypes.data, False), "shape": array.shape, "typestr": array.dtype.str, "strides": None}
    return SimpleNamespace(
        __cuda_array_interface__=described | ({} if array.flags.c_contiguous else {"strides": array.strides})
    )


def test_arrays_are_read_and_written_whole(counting: CountingDriver) -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    with closing(Bench()) as bench:
        assert bench.read(on_host(array)) == array.tobytes()
        bench.write(on_host(array), bytes(48))
        assert not array.any()
        assert bench.read(on_host(np.zeros((0, 4)))) == b""
        with pytest.raises(TypeError):
            bench.read(on_host(array[:, :2]))


@pytest.fixture
def _no_known_kinds() -> Iterator[None]:
    device._kind.cache_clear()
    yield
    device._kind.cache_clear()


@pytest.mark.usefixtures("_no_known_kinds")
def test_the_kind_of_a_device(counting: CountingDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    smaller = SimpleNamespace(**vars(counting.device) | {"device_id": 1, "name": "NVIDIA H20"})
    every = [counting.device]

    class Device:
        def __new__(cls, ordinal: int) -> Any:
            return every[ordinal]

        @staticmethod
        def get_all_devices() -> list[Any]:
            return every

    monkeypatch.setattr(libraries, "Device", Device)
    monkeypatch.setattr(device, "_is_uniform", False)
    assert device.current_kind() == "NVIDIA H200 (sm_90, 132 SMs, memory at 3201 MHz)"
    every.append(smaller)
    assert device.place() == counting.device.device_id + 1
    every.pop()
    assert device.place() == 0
