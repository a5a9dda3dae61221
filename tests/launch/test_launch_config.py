"""Launch configurations: checked, counted in blocks, and with shared memory granted, without a device."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from jitlto.base.errors import LaunchError
from jitlto.cuda import device
from jitlto.launch import launcher
from jitlto.launch.step import parse_extent
from tests.support.errors import raises
from tests.support.launchers import FakeDriver

MOST = 200 * 1024


class FakeDevices:
    """Two devices of one architecture and one of another; each grants up to ``MOST`` bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, static: int = 0) -> None:
        self.requests: list[tuple[int, int]] = []
        properties = SimpleNamespace(max_shared_memory_per_block_optin=MOST)
        devices = [
            SimpleNamespace(device_id=number, compute_capability=capability, properties=properties)
            for number, capability in enumerate([(9, 0), (9, 0), (8, 0)])
        ]
        status = driver.CUresult

        def set_attribute(_: object, size: int, __: int, number: int) -> tuple[Any]:
            self.requests.append((number, size))
            return (status.CUDA_SUCCESS if size <= MOST else status.CUDA_ERROR_INVALID_VALUE,)

        self.launcher = FakeDriver(monkeypatch).launcher()
        self.launcher.kernel.attributes[0].shared_size_bytes = static
        monkeypatch.setattr(device, "current", lambda: devices[0])
        monkeypatch.setattr(launcher.Device, "get_all_devices", lambda: devices)
        monkeypatch.setattr(launcher.driver, "cuKernelSetAttribute", set_attribute)

    def grant(self, size: int) -> None:
        assert self.launcher.check(1, 32, size, None, False) == ((1, 1, 1), (32, 1, 1), None)


@pytest.mark.parametrize(
    ("value", "extent"),
    [
        (3, (3, 1, 1)),
        ((3,), (3, 1, 1)),
        ((3, 4), (3, 4, 1)),
        ([3, 4, 5], (3, 4, 5)),
        ((np.int64(3), np.uint8(4)), (3, 4, 1)),
    ],
)
def test_an_extent_has_three_dimensions(value: Any, extent: tuple[int, int, int]) -> None:
    found = parse_extent("grid", value)
    assert found == extent
    assert all(type(each) is int for each in found)


@pytest.mark.parametrize(
    "value", [0, -1, (), (1, 0), (1, 1, 1, 1), 1.0, "1", True, None, (1, None), np.float32(1), np.bool_(True)]
)
def test_what_is_no_extent_is_named(value: Any) -> None:
    with raises(LaunchError, "launch-config", "grid", repr(value)):
        parse_extent("grid", value)


def test_shared_memory_is_requested_above_48_kb_on_every_device_of_the_architecture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeDevices(monkeypatch)
    fake.grant(48 * 1024)
    assert fake.requests == []
    fake.grant(100 * 1024)
    assert fake.requests == [(0, 100 * 1024), (1, 100 * 1024)]


def test_what_is_granted_is_never_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeDevices(monkeypatch)
    for size in (100, 60, 100, 160, 60):
        fake.grant(size * 1024)
    assert [size // 1024 for number, size in fake.requests if number == 0] == [100, 160]


def test_static_shared_memory_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeDevices(monkeypatch, static=40 * 1024)
    fake.grant(8 * 1024)
    assert fake.requests == []
    fake.grant(9 * 1024)
    assert fake.requests


def test_more_shared_memory_than_a_device_has_is_refused_with_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeDevices(monkeypatch)
    with raises(LaunchError, "launch-shared-memory", str(1 << 20), where="test/kern", hint=str(MOST)):
        fake.grant(1 << 20)
    fake.grant(100 * 1024)
