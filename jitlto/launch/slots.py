"""Slots: arguments of a sequence that its calls replace, and how they are converted and written."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jitlto.base.frozen import Frozen
from jitlto.base.types import Parameter, find_scalar
from jitlto.launch.arguments import pointed_type
from jitlto.launch.array_types import find_array_type
from jitlto.launch.compiled import address_reader
from jitlto.launch.packed import to_bytes

if TYPE_CHECKING:
    from jitlto.launch.arguments import Converter

_INTEGERS: dict[str, Any] = {
    "i1": ctypes.c_int8, "i2": ctypes.c_int16, "i4": ctypes.c_int32, "i8": ctypes.c_int64,
    "u1": ctypes.c_uint8, "u2": ctypes.c_uint16, "u4": ctypes.c_uint32, "u8": ctypes.c_uint64,
}  # fmt: skip
_FLOATS: dict[str, Any] = {"f4": ctypes.c_float, "f8": ctypes.c_double}


class Slot(Frozen):
    """A named place for an argument that a sequence's calls can replace.

    Args:
        name: A Python identifier. Slots of one name, in one launch or in several, get the same argument.
    """

    name: str


class Place(NamedTuple):
    """A parameter of one launch that a slot's argument is passed to.

    Args:
        launch: The number of the launch, from 0.
        convert: Converts an argument to what is written: an int, a float or bytes.
        cell: The memory of the parameter, a ctypes object; assigning to its ``value`` writes.
    """

    launch: int
    convert: Callable[[Any], Any]
    cell: Any


def make_place(launch: int, parameter: Parameter, convert: Converter, memory: memoryview) -> Place:
    """Return the place of a parameter.

    Args:
        launch: The number of the launch.
        parameter: The parameter.
        convert: Its converter, for what has no faster way here.
        memory: The bytes that are passed to the kernel.
    """
    if pointed_type(parameter) is not None:
        return Place(launch, _address_reader(parameter, convert), ctypes.c_uint64.from_buffer(memory))
    known = find_scalar(parameter.type.strip())
    typestr = "" if known is None else known.typestr
    if typestr in _INTEGERS:
        return Place(launch, _integer_reader(typestr, convert), _INTEGERS[typestr].from_buffer(memory))
    if typestr in _FLOATS:
        return Place(launch, _float_reader(typestr, convert), _FLOATS[typestr].from_buffer(memory))
    size = len(memory)
    return Place(launch, lambda argument: to_bytes(convert(argument), size), (ctypes.c_char * size).from_buffer(memory))


def _address_reader(parameter: Parameter, convert: Converter) -> Callable[[Any], int]:
    compiled, python = address_reader(parameter, convert), _python_address_reader(convert)
    if compiled is None:
        return python

    def read(argument: Any) -> int:
        address = compiled(argument)
        return python(argument) if address is None else address

    return read


def _python_address_reader(convert: Converter) -> Callable[[Any], int]:
    # Type and dtype of the last array, and how such arrays are read; in one tuple, because threads replace it.
    known: tuple[Any, ...] = (None, None, None)
    other: type | None = None  # the last type that only the converter reads

    def read(argument: Any) -> int:
        nonlocal known, other
        kind, dtype, read_known = known
        if type(argument) is kind:
            try:
                if argument.dtype is dtype and (found := read_known(argument)):
                    return found  # type: ignore[no-any-return]
            except Exception:  # noqa: BLE001, S110 - the converter handles arrays that are read in another way
                pass
        address: int = convert(argument)
        if type(argument) is not other:
            how = find_array_type(type(argument))
            if how is None:
                other = type(argument)
            elif how.agrees(argument, address):
                known = (type(argument), argument.dtype, how.read)
        return address

    return read


def _integer_reader(typestr: str, convert: Converter) -> Callable[[Any], int]:
    limits = np.iinfo(typestr)
    low, high = int(limits.min), int(limits.max)

    def read(argument: Any) -> int:
        if type(argument) is int and low <= argument <= high:
            return argument
        return int(convert(argument))

    return read


def _float_reader(typestr: str, convert: Converter) -> Callable[[Any], float]:
    high = float(np.finfo(typestr).max)

    def read(argument: Any) -> float:
        if type(argument) is float and -high <= argument <= high:
            return argument
        return float(convert(argument))

    return read
