"""Bytes of an argument that is no scalar, as ``cuda.core.launch`` passes them on."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from jitlto.cuda.libraries import Buffer


class Packed(Buffer):  # type: ignore[misc]  # cuda.core has no types for mypy
    """The bytes of an argument.

    ``cuda.core.launch`` takes no structures; of a buffer whose handle is no Python int it gives the driver the address
    that the handle's ``getPtr`` returns.

    Attributes:
        storage (ctypes.Array): A copy of the argument, of exactly the parameter's size; has the buffer protocol.
        address (int): Where ``storage`` lies.
    """

    storage: ctypes.Array[ctypes.c_char]
    address: int

    @classmethod
    def copy(cls, data: Any, size: int) -> Packed:
        """Copy ``size`` bytes of an object with the buffer protocol."""
        storage = _storage_type(size).from_buffer_copy(data)
        address = ctypes.addressof(storage)
        packed: Packed = cls._init(address, size, None, None, storage)
        packed.storage, packed.address = storage, address
        return packed

    @property
    def handle(self) -> Any:
        """What ``cuda.core`` asks for the address."""
        return self

    def getPtr(self) -> int:  # noqa: N802 - the name that cuda.core calls
        """Return the address of the bytes."""
        return self.address

    def __buffer__(self, flags: int, /) -> memoryview:
        """Return the bytes."""
        return memoryview(self.storage)

    def __release_buffer__(self, buffer: memoryview, /) -> None:
        """Do nothing: the storage is not freed before the buffer."""

    def __bytes__(self) -> bytes:
        return bytes(self.storage)


@cache
def is_passed_on() -> bool:
    """Return whether ``cuda.core`` gives the driver the address of a :class:`Packed`."""
    try:
        from jitlto.cuda.libraries import ParamHolder

        packed = Packed.copy(bytes(9), 9)
        holder = ParamHolder((packed,))
        return bool(ctypes.c_void_p.from_address(holder.ptr).value == packed.address)
    except Exception:  # noqa: BLE001 - whatever a later version does not have
        return False


@cache
def _storage_type(size: int) -> type[ctypes.Array[ctypes.c_char]]:
    return ctypes.c_char * size


def to_bytes(value: Any, size: int) -> bytes:
    """Return the bytes that the kernel reads of what a converter returned."""
    if isinstance(value, Packed):
        return bytes(value)
    if isinstance(value, int):
        return (value & (1 << 64) - 1).to_bytes(8, "little")[:size]
    data: bytes = value.tobytes()
    return data
