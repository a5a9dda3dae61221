"""Parameters that are no scalars of NumPy: structures, vector types, descriptors, enums, 128-bit integers.

A structure is a value of ctypes, a structured scalar of NumPy, or bytes, with the size and alignment of the kernel's;
nothing else is known of it.
"""

import ctypes
import enum
import operator
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any, NoReturn

import numpy as np

from jitlto.base.layouts import INTEGERS_128, find_vector, is_supported
from jitlto.base.types import Parameter, argument_error, from_numpy_name, range_error, type_error

_DESCRIPTORS = ("CUtensorMap_st", "CUtensorMap")
# Elements of vectors, and of arrays that stand for them as well: their bits, and bytes of either sign.
_ALIKE = {
    "__half": "unsigned short", "__nv_bfloat16": "unsigned short", "char": "unsigned char", "unsigned char": "char",
}  # fmt: skip


def make_by_value(parameter: Parameter) -> Callable[[Any], bytes]:
    """Return the converter of a parameter whose type is no scalar, or is ``float2`` or ``double2``."""
    type_, bits = parameter.type.strip(), 8 * parameter.size
    if type_.startswith("enum ") and parameter.size in (1, 2, 4, 8):
        # Enumerators are their values, whatever type underlies them.
        expected = "an enumerator or its value as an integer"
        return partial(_encode_integer, parameter, -(1 << bits - 1), (1 << bits) - 1, expected)
    if not is_supported(type_):
        return partial(_refuse, parameter)
    if type_ in INTEGERS_128 and bits == 128:
        low, high = (-(1 << 127), (1 << 127) - 1) if INTEGERS_128[type_] else (0, (1 << 128) - 1)
        return partial(_encode_integer, parameter, low, high, "an integer")
    vector = find_vector(type_)
    if vector is not None and vector[0].size * vector[1] != parameter.size:
        vector = None  # another type with the name of a built-in one
    return _structure(parameter, None if vector is None else vector[0].name)


def _refuse(parameter: Parameter, argument: Any) -> NoReturn:
    what = f"cannot pass {type(argument).__name__}: parameters of type {parameter.type.strip()} are not supported"
    raise argument_error(parameter, "unsupported", what, "let the kernel take a pointer to the value")


def _encode_integer(parameter: Parameter, low: int, high: int, expected: str, argument: Any) -> bytes:
    try:
        value = operator.index(argument.value if isinstance(argument, enum.Enum) else argument)
    except TypeError:
        raise type_error(parameter, argument, expected) from None
    if not low <= value <= high:
        raise range_error(parameter, value, low, high)
    return (value & (1 << 8 * parameter.size) - 1).to_bytes(parameter.size, "little")


def _structure(parameter: Parameter, element: str | None) -> Callable[[Any], bytes]:
    """Return the converter of a structure, or of a vector with such elements."""
    check = cache(partial(_check_layout, parameter, element is not None))
    expected = "a ctypes structure, a NumPy structured scalar or bytes"
    if parameter.type in _DESCRIPTORS:
        expected = "a tensor map descriptor or its bytes"
    elif element is not None:
        expected = "a NumPy array of its elements, a NumPy structured scalar or bytes"
    hint = f"pass bytes as {parameter.type} lies in memory"

    def convert(argument: Any) -> bytes:
        if isinstance(argument, ctypes.Structure | ctypes.Union | ctypes.Array):
            check(type(argument))
            return memoryview(argument).tobytes()
        if isinstance(argument, np.generic | np.ndarray):
            dtype = argument.dtype
            if dtype.fields and argument.size == 1:
                check(dtype)
            elif element is not None and argument.ndim == 1:
                if not dtype.isnative or from_numpy_name(dtype.name) not in (element, _ALIKE.get(element, element)):
                    what = f"expected an array of {element}, got an array of {dtype.name}"
                    raise argument_error(parameter, "layout", what, f"pass an array of {element}")
            # Else it may be bytes, or a number of ml_dtypes.
            elif not isinstance(argument, np.void) and not (
                argument.ndim == 0 and from_numpy_name(dtype.name) == parameter.type
            ):
                raise type_error(parameter, argument, expected)
            argument = argument.tobytes()
        elif parameter.type in _DESCRIPTORS:
            argument = _read_descriptor(argument, parameter.size)
        if not isinstance(argument, bytes | bytearray | memoryview):
            raise type_error(parameter, argument, expected)
        made = bytes(argument)  # the memory need not be contiguous
        if len(made) != parameter.size:
            raise argument_error(parameter, "layout", f"expected {parameter.size} bytes, got {len(made)}", hint)
        return made

    return convert


def _read_descriptor(argument: Any, size: int) -> Any:
    """Return the bytes of a tensor map of CUDA's bindings or of ``cuda.core``; another argument as it is."""
    kind = type(argument)
    library = kind.__module__.partition(".")[0]
    if library == "cuda" and kind.__name__ == "CUtensorMap":
        return ctypes.string_at(argument.getPtr(), size)
    if library == "cuda" and kind.__name__ == "TensorMapDescriptor":
        from jitlto.cuda.libraries import ParamHolder

        holder = ParamHolder((argument,))  # copies it, as for cuda.core.launch: nothing else tells its bytes
        return ctypes.string_at(ctypes.c_void_p.from_address(holder.ptr).value or 0, size)
    return argument


def _check_layout(parameter: Parameter, is_vector: bool, kind: Any) -> None:
    """Check size and alignment of a type of ctypes or NumPy; vectors have alignments that no type of Python has."""
    name = "the dtype" if isinstance(kind, np.dtype) else kind.__name__
    # Only some types of Python can be aligned to more than 8 bytes.
    lowest = 1 if parameter.alignment > 8 else parameter.alignment
    what = ""
    try:
        size, alignment = _measure(kind)
        if size != parameter.size:
            what = f"{name} has {size} bytes, {parameter.type} has {parameter.size}"
        elif not (is_vector or parameter.type in _DESCRIPTORS or lowest <= alignment <= parameter.alignment):
            what = f"{name} is aligned to {alignment} bytes, {parameter.type} to {parameter.alignment}"
    except ValueError as error:
        what = f"{name}: {error}"
    if what:
        hint = "declare the fields as in C++, a dtype with align=True; bytes of the right number are taken as they are"
        raise argument_error(parameter, "layout", what, hint)


def _measure(kind: Any) -> tuple[int, int]:
    """Return size and alignment of a type of ctypes or NumPy; ValueError if no kernel could read it."""
    if isinstance(kind, np.dtype):
        return kind.itemsize, _alignment(kind)
    with suppress(TypeError, NotImplementedError):  # bit fields, typed pointers, base classes
        _alignment(np.dtype(kind))
    return ctypes.sizeof(kind), ctypes.alignment(kind)


def _alignment(dtype: np.dtype[Any]) -> int:
    """Return the alignment that the fields of a dtype have, whether it was made with ``align`` or not."""
    if dtype.subdtype is not None:
        return _alignment(dtype.subdtype[0])
    if dtype.fields is None:
        if dtype.hasobject or not dtype.isnative:
            raise ValueError("it holds Python objects, or is not in the byte order of the device")
        return 1 if dtype.kind == "V" else dtype.alignment
    fields = [(offset, _alignment(inner)) for inner, offset, *_ in dtype.fields.values()]
    return 1 if any(offset % each for offset, each in fields) else max((each for _, each in fields), default=1)
