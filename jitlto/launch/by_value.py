"""Parameters that are no scalars of NumPy: structures, vector types, descriptors, enums, 128-bit integers.

A structure is a value of ctypes, a structured scalar of NumPy, a dataclass or bytes; where its fields are known, also
their values.
"""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import operator
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NoReturn, TypeAlias

import numpy as np

from jitlto.base.errors import ArgumentError
from jitlto.base.layouts import (
    Field,
    Layout,
    array,
    find_difference,
    is_supported,
    parse_definitions,
    parse_type,
    structure,
)
from jitlto.base.types import Parameter, from_numpy_name
from jitlto.launch.argument_errors import argument_error, range_error, type_error

Converter: TypeAlias = Callable[[Any], bytes]
Make: TypeAlias = Callable[[Parameter], Converter]

_DESCRIPTORS = ("CUtensorMap_st", "CUtensorMap")
_LARGEST = 1 << 16  # bytes: twice what CUDA takes as the arguments of a kernel


def make_by_value(parameter: Parameter, make: Make) -> Converter:
    """Return the converter of a parameter whose type is no scalar, or is ``float2`` or ``double2``.

    Args:
        parameter: The parameter.
        make: Makes the converters of fields.
    """
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
    return Structure(parameter, layout, make)


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


class Structure:
    """Converts structures: values whose type has the layout, bytes, or values of the fields where these are known.

    Args:
        parameter: The parameter, or a part of one.
        layout: The layout of its type if that is known.
        make: Makes the converters of fields.
    """

    def __init__(self, parameter: Parameter, layout: Layout | None, make: Make) -> None:
        self._parameter, self._make = parameter, make
        self._layout = layout if layout is not None and layout.fields else None
        fields = self._layout.fields if self._layout is not None else ()
        encoders = [_make_encoder(f"{parameter.name}.{field.name}", field.layout, make) for field in fields]
        self._fields = [(f.name, f.offset, f.layout.size, e) for f, e in zip(fields, encoders, strict=True)]
        self._checked: dict[Any, Structure] = {}  # by type or dtype: what converts values of its fields

    def __call__(self, argument: Any) -> bytes:
        """Return the bytes of an argument, exactly as many as the type has."""
        parameter = self._parameter
        if isinstance(argument, ctypes.Structure | ctypes.Union | ctypes.Array):
            self._check_type(type(argument))
            return memoryview(argument).tobytes()
        if isinstance(argument, np.void | np.ndarray) and argument.ndim == 0 and argument.dtype.fields:
            self._check_type(argument.dtype)
            return argument.tobytes()
        is_number = isinstance(argument, np.generic) and from_numpy_name(argument.dtype.name) == parameter.type
        if is_number or isinstance(argument, np.void):  # of ml_dtypes, or bytes
            argument = argument.tobytes()
        if isinstance(argument, bytes | bytearray | memoryview):
            return self._check_size(argument)
        if self._layout is not None:
            return self._encode(argument)
        if dataclasses.is_dataclass(argument):
            return self._check_type(type(argument))._encode(argument)
        return self._encode_descriptor(argument)

    def _type_error(self, argument: Any) -> ArgumentError:
        expected = "a ctypes structure, a NumPy structured scalar, a dataclass or bytes"
        if self._layout is not None:
            expected = f"the values of {', '.join(name for name, *_ in self._fields)}, a structure or bytes"
        elif self._parameter.type in _DESCRIPTORS:
            expected = "a tensor map descriptor or its bytes"
        return type_error(self._parameter, argument, expected)

    def _check_size(self, data: bytes | bytearray | memoryview) -> bytes:
        made, size = bytes(data), self._parameter.size  # the memory need not be contiguous
        if len(made) != size:
            hint = f"pass bytes as {self._parameter.type} lies in memory"
            raise argument_error(self._parameter, "layout", f"expected {size} bytes, got {len(made)}", hint)
        return made

    def _check_type(self, kind: Any) -> Structure:
        """Check the layout of a Python type against what is known of the parameter's, once."""
        if kind in self._checked:
            return self._checked[kind]
        parameter, name = self._parameter, "the dtype" if isinstance(kind, np.dtype) else kind.__name__
        try:
            layout = layout_of(kind)
        except UnknownLayoutError as error:
            hint = "pass a structure of such types, or bytes"
            raise argument_error(parameter, "layout", str(error), hint) from None
        difference = None
        # Only some types of Python can be aligned to more than 8 bytes.
        lowest = 1 if parameter.alignment > 8 else parameter.alignment
        if layout.size != parameter.size:
            difference = f"{name} has {layout.size} bytes, {parameter.type} has {parameter.size}"
        elif self._layout is not None:
            difference = find_difference(self._layout, layout)
        elif parameter.type not in _DESCRIPTORS and not lowest <= layout.alignment <= parameter.alignment:
            difference = f"{name} is aligned to {layout.alignment} bytes, {parameter.type} to {parameter.alignment}"
        if difference is not None:
            hint = (
                "declare the fields as in C++, a dtype with align=True; bytes of the right number are taken as they are"
            )
            raise argument_error(parameter, "layout", difference, hint)
        return self._checked.setdefault(kind, Structure(parameter, layout, self._make))

    def _encode_descriptor(self, argument: Any) -> bytes:
        kind, size = type(argument), self._parameter.size
        if self._parameter.type in _DESCRIPTORS and kind.__module__.partition(".")[0] == "cuda":
            if kind.__name__ == "CUtensorMap":
                return ctypes.string_at(argument.getPtr(), size)
            if kind.__name__ == "TensorMapDescriptor":
                from jitlto.cuda.libraries import ParamHolder

                holder = ParamHolder((argument,))  # copies it, as for cuda.core.launch: nothing else tells its bytes
                return ctypes.string_at(ctypes.c_void_p.from_address(holder.ptr).value or 0, size)
        raise self._type_error(argument)

    def _encode(self, argument: Any) -> bytes:
        """Return the bytes of values of the fields: a dataclass, a mapping or a sequence."""
        names = [name for name, *_ in self._fields]
        values: Mapping[Any, Any]
        if isinstance(argument, Mapping):
            values = argument
        elif dataclasses.is_dataclass(argument):
            values = {field.name: getattr(argument, field.name) for field in dataclasses.fields(argument)}
        elif (
            isinstance(argument, Sequence | np.ndarray)
            and not isinstance(argument, str)
            and getattr(argument, "ndim", 1) == 1
        ):
            values = dict(zip(names, argument, strict=False)) if len(argument) == len(names) else {len(argument): None}
        else:
            raise self._type_error(argument)
        if set(values) != set(names):
            what = f"expected the fields {', '.join(names)}, got {', '.join(map(str, values))}"
            raise argument_error(self._parameter, "layout", what, "give each field a value")
        data = bytearray(self._parameter.size)
        for name, offset, size, encode in self._fields:
            data[offset : offset + size] = encode(values[name])
        return bytes(data)


def _make_encoder(name: str, layout: Layout, make: Make) -> Converter:
    """Return a function that encodes a field, which messages call ``name``, or an element of one."""
    part = Parameter(name, layout.type, layout.size, layout.alignment)
    if layout.element is not None:
        element = _make_encoder(f"{name}[]", layout.element, make)
        return partial(_encode_array, part, layout.size // layout.element.size, element)
    return Structure(part, layout, make) if layout.fields or layout.kind == "bytes" else make(part)


def _encode_array(part: Parameter, count: int, encode: Converter, argument: Any) -> bytes:
    if isinstance(argument, bytes) and len(argument) == part.size == count:
        return argument  # a text
    if not isinstance(argument, Sequence | np.ndarray | ctypes.Array) or isinstance(argument, str):
        raise type_error(part, argument, f"a sequence of {count} values")
    if len(argument) != count:
        what = f"expected {count} values, got {len(argument)}"
        raise argument_error(part, "layout", what, f"pass a sequence of {count} values")
    return b"".join(map(encode, argument))


# --- layouts of Python's types ---


class UnknownLayoutError(ValueError):
    """A type has no layout that a kernel could read; the message says why."""


@lru_cache(maxsize=1024)
def layout_of(kind: Any) -> Layout:
    """Return the layout of a ctypes type, a dtype or type of NumPy, a dataclass, or what annotates a field of one.

    Raises:
        UnknownLayoutError: If it has none.
    """
    if typing.get_origin(kind) is typing.Annotated:  # a type, and the extents of an array
        note, *extents = kind.__metadata__
        layout = parse_type(note) if isinstance(note, str) else layout_of(note)
        if layout is not None and all(isinstance(extent, int) and extent > 0 for extent in extents):
            for extent in reversed(extents):
                layout = array(layout, extent)
            return layout
    elif isinstance(kind, np.dtype) or (isinstance(kind, type) and issubclass(kind, np.generic)):
        return _dtype_layout(np.dtype(kind))
    elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return structure(kind.__name__, _dataclass_members(kind))
    elif isinstance(kind, type) and ctypes.Structure.__base__ in kind.__mro__:  # what all of ctypes is made of
        return _ctypes_layout(kind)
    what = 'annotate it with a type of NumPy or ctypes, a dataclass, or Annotated[..., "a C++ type"]'
    raise UnknownLayoutError(f"its type in C++ is not known: {what}")


def _dtype_layout(dtype: np.dtype[Any]) -> Layout:
    if dtype.hasobject or not dtype.isnative:
        raise UnknownLayoutError(f"{dtype} holds Python objects, or is not in the byte order of the device")
    if dtype.subdtype is not None:
        layout = _dtype_layout(dtype.subdtype[0])
        for extent in reversed(dtype.subdtype[1]):
            layout = array(layout, extent)
        return layout
    if dtype.fields is not None:
        members = [(name, *dtype.fields[name][:2]) for name in dtype.names or ()]
        parts = [Field(name, offset, _dtype_layout(member)) for name, member, offset in members]
        fields = tuple(sorted(parts, key=lambda field: field.offset))
        if any(a.offset + a.layout.size > b.offset for a, b in pairwise(fields)):  # a union
            return Layout(str(dtype), dtype.itemsize, dtype.alignment, "bytes")
        is_aligned = not any(field.offset % field.layout.alignment for field in fields)
        alignment = max((field.layout.alignment for field in fields), default=1) if is_aligned else 1
        return Layout("the dtype", dtype.itemsize, alignment, "structure", None, fields)
    if dtype.kind == "c":
        return array(_dtype_layout(np.dtype(f"f{dtype.itemsize // 2}")), 2)
    # What NumPy does not know, such as bfloat16 of ml_dtypes, has a name that C++ knows.
    return parse_type(from_numpy_name(dtype.name) or "") or Layout(str(dtype), dtype.itemsize, 1, "bytes")


def _ctypes_layout(kind: Any) -> Layout:
    """Return what NumPy knows of a ctypes type: nothing of bit fields, typed pointers and base classes."""
    opaque = Layout(kind.__name__, ctypes.sizeof(kind), ctypes.alignment(kind), "bytes")
    try:
        found = _dtype_layout(np.dtype(kind))
    except (TypeError, NotImplementedError):
        return opaque
    if found.size != opaque.size or found.kind == "bytes":
        return opaque
    return replace(found, type=opaque.type, alignment=opaque.alignment) if found.fields else found


def _dataclass_members(class_: Any) -> list[tuple[str, Layout]]:
    """Return name and layout of the fields of a dataclass."""
    name = class_.__name__
    try:
        hints = typing.get_type_hints(class_, include_extras=True)
        members = []
        for field in dataclasses.fields(class_):
            name = f"{class_.__name__}.{field.name}"
            members.append((field.name, layout_of(hints[field.name])))
    except Exception as error:  # of evaluating its annotations, too
        raise UnknownLayoutError(f"{name}: {error}") from error
    return members
