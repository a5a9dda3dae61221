"""The kind of the current device, as wisdom knows it."""

from __future__ import annotations

from functools import cache

from jitlto.cuda import device, libraries
from jitlto.tuning.wisdom import DeviceKind


def current_kind() -> DeviceKind:
    """Return the kind of the current device.

    Raises:
        NoDeviceError: If there is none.
    """
    return _kind(device.ordinal())


def are_alike() -> bool:
    """Return whether all devices are of one kind, so that the current one does not matter.

    Raises:
        NoDeviceError: If there is none.
    """
    device.current()
    return len({_kind(int(each.device_id)) for each in libraries.Device.get_all_devices()}) == 1


@cache
def _kind(ordinal: int) -> DeviceKind:
    found = libraries.Device(ordinal)
    major, minor = found.compute_capability
    properties = found.properties
    clock, count = int(properties.memory_clock_rate), int(properties.multiprocessor_count)
    return DeviceKind(str(found.name), f"sm_{major}{minor}", max(0, clock), count)
