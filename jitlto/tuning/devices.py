"""The kind of the current device, as wisdom knows it."""

from functools import cache

from jitlto.cuda import device, libraries


def current_kind() -> str:
    """Return the kind of the current device: what of it decides how fast kernels are.

    Raises:
        NoDeviceError: If there is none.
    """
    return _kind(device.current().device_id)


def are_alike() -> bool:
    """Return whether all devices are of one kind, so that the current one does not matter.

    Raises:
        NoDeviceError: If there is none.
    """
    device.current()
    return len({_kind(int(each.device_id)) for each in libraries.Device.get_all_devices()}) == 1


def place() -> int:
    """Return 0 if all devices are of one kind, else a number of the current one.

    Raises:
        NoDeviceError: If there is none.
    """
    return 0 if are_alike() else device.current().device_id + 1


@cache
def _kind(ordinal: int) -> str:
    found = libraries.Device(ordinal)
    major, minor = found.compute_capability
    clock, count = found.properties.memory_clock_rate, found.properties.multiprocessor_count
    return f"{found.name} (sm_{major}{minor}, {count} SMs, memory at {clock // 1000} MHz)"
