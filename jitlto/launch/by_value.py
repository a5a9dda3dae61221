"""Parameters that are no scalars of NumPy: structures, vector types, descriptors, enums, 128-bit integers.

A structure is a value of ctypes, a structured scalar of NumPy, or bytes; what takes its values apart is NumPy.
"""

from __future__ import annotations

import ctypes
import enum
import operator
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import Any, NoReturn, TypeAlias

import numpy as np

from jitlto.base.layouts import Field, Layout, array, find_difference, is_supported, parse_definitions, parse_type
from jitlto.base.types import Parameter, from_numpy_name
from jitlto.launch.argument_errors import argument_error, range_error, type_error

Converter: TypeAlias = Callable[[Any], bytes]

_DESCRIPTORS = ("CUtensorMap_st", "CUtensorMap")
_LARGEST = 1 << 16  # bytes: twice what CUDA takes as the arguments of a kernel


def make_by_value(parameter: Parameter) -> Converter:
    """Return the converter of a parameter whose type is no scalar, or is ``float2`` or ``double2``."""
    type_, bits = parameter.type.strip(), 8 * parameter.size
    if type_.startswith("enum ") and parameter.size in (1, 2, 4, 8):
        # Enumerators are their values, whatever type underlies them.
        expected = "an enumerator or its value as an integer"
        return partial(_encode_integer, parameter, -(1 << bits - 1), (1 << bits) - 1, expected)
    if not is_supported(type_):
        return partial(_refuse, parameter)
    layout = _declared(parameter.definition) if parameter.definition else parse_type(type_)
    if layout is not None and layout.size != parameter.size:
        layout = None  # another type with the name of a built-in one
    if layout is not None and layout.kind in ("i16", "u16"):
        low, high = (-(1 << 127), (1 << 127) - 1) if layout.kind == "i16" else (0, (1 << 128) - 1)
        return partial(_encode_integer, parameter, low, high, "an integer")
    return _structure(parameter, layout if layout is not None and layout.fields else None)


def _declared(definition: str) -> Layout | None:
    try:
        layout = parse_definitions(definition)
    except ValueError:
        return None  # of a later version, which knows more types
    return layout if layout.size <= _LARGEST else None


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


def _structure(parameter: Parameter, layout: Layout | None) -> Converter:
    """Return the converter of a structure, which takes a value whose type has its layout, as far as known, or bytes."""
    size, is_vector = parameter.size, layout is not None and layout.kind == "vector"
    check_type = cache(partial(_check_type, parameter, layout))
    expected = "a ctypes structure, a NumPy structured scalar or bytes"
    if parameter.type in _DESCRIPTORS:
        expected = "a tensor map descriptor or its bytes"
    elif is_vector:
        expected = "a NumPy array of its elements, a NumPy structured scalar or bytes"

    def convert(argument: Any) -> bytes:
        if isinstance(argument, ctypes.Structure | ctypes.Union | ctypes.Array):
            check_type(type(argument))
            return memoryview(argument).tobytes()
        if isinstance(argument, np.generic | np.ndarray):
            dtype = argument.dtype
            if dtype.fields and argument.size == 1:
                check_type(dtype)
            elif is_vector and argument.ndim == 1:
                check_type(np.dtype((dtype, argument.shape)))
            # Else it may be bytes, or a number of ml_dtypes.
            elif not isinstance(argument, np.void) and not (
                argument.ndim == 0 and from_numpy_name(dtype.name) == parameter.type
            ):
                raise type_error(parameter, argument, expected)
            argument = argument.tobytes()
        elif parameter.type in _DESCRIPTORS:
            argument = _read_descriptor(argument, size)
        if not isinstance(argument, bytes | bytearray | memoryview):
            raise type_error(parameter, argument, expected)
        made = bytes(argument)  # the memory need not be contiguous
        if len(made) != size:
            hint = f"pass bytes as {parameter.type} lies in memory"
            raise argument_error(parameter, "layout", f"expected {size} bytes, got {len(made)}", hint)
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


def _check_type(parameter: Parameter, expected: Layout | None, kind: Any) -> None:
    """Check the layout of a type of ctypes or NumPy against what is known of the parameter's."""
    name = "the dtype" if isinstance(kind, np.dtype) else kind.__name__
    hint = "declare the fields as in C++, a dtype with align=True; bytes of the right number are taken as they are"
    try:
        layout = layout_of(kind)
    except ValueError as error:
        raise argument_error(parameter, "layout", str(error), hint) from None
    difference = None
    # Only some types of Python can be aligned to more than 8 bytes.
    lowest = 1 if parameter.alignment > 8 else parameter.alignment
    if layout.size != parameter.size:
        difference = f"{name} has {layout.size} bytes, {parameter.type} has {parameter.size}"
    elif expected is not None:
        difference = find_difference(expected, layout)
    elif parameter.type not in _DESCRIPTORS and not lowest <= layout.alignment <= parameter.alignment:
        difference = f"{name} is aligned to {layout.alignment} bytes, {parameter.type} to {parameter.alignment}"
    if difference is not None:
        raise argument_error(parameter, "layout", difference, hint)


def layout_of(kind: Any) -> Layout:
    """Return the layout of a dtype, or of a type of ctypes as far as NumPy knows it.

    Raises:
        ValueError: If no kernel could read it.
    """
    if not isinstance(kind, np.dtype):
        opaque = Layout(kind.__name__, ctypes.sizeof(kind), ctypes.alignment(kind), "bytes")
        try:
            dtype = np.dtype(kind)
        except (TypeError, NotImplementedError):  # bit fields, typed pointers, base classes
            return opaque
        found = layout_of(dtype)
        if found.size != opaque.size or found.kind == "bytes":
            return opaque
        return replace(found, type=opaque.type, alignment=opaque.alignment) if found.fields else found
    if kind.hasobject or not kind.isnative:
        raise ValueError(f"{kind} holds Python objects, or is not in the byte order of the device")
    if kind.subdtype is not None:
        layout = layout_of(kind.subdtype[0])
        for extent in reversed(kind.subdtype[1]):
            layout = array(layout, extent)
        return layout
    if kind.fields is not None:
        parts = [Field(name, kind.fields[name][1], layout_of(kind.fields[name][0])) for name in kind.names or ()]
        fields = tuple(sorted(parts, key=lambda field: field.offset))
        if any(a.offset + a.layout.size > b.offset for a, b in pairwise(fields)):  # a union
            return Layout(str(kind), kind.itemsize, kind.alignment, "bytes")
        is_aligned = not any(field.offset % field.layout.alignment for field in fields)
        alignment = max((field.layout.alignment for field in fields), default=1) if is_aligned else 1
        return Layout("the dtype", kind.itemsize, alignment, "structure", None, fields)
    if kind.kind == "c":
        return array(layout_of(np.dtype(f"f{kind.itemsize // 2}")), 2)
    # What NumPy does not know, such as bfloat16 of ml_dtypes, has a name that C++ knows.
    return parse_type(from_numpy_name(kind.name) or "") or Layout(str(kind), kind.itemsize, 1, "bytes")
