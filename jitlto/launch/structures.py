"""Parameters that are no scalars of NumPy: structures, vector types, descriptors, enums, 128-bit integers.

A structure is taken from ctypes, NumPy, a dataclass or bytes, or from the values of its fields where these are known.
"""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, TypeAlias

import numpy as np

from jitlto.base.errors import ArgumentError
from jitlto.base.layouts import Layout, find_difference, is_supported, parse_definitions, parse_type
from jitlto.base.types import Parameter, from_numpy_name
from jitlto.launch.argument_errors import argument_error, type_error
from jitlto.launch.python_layouts import UnknownLayoutError, layout_of

Converter: TypeAlias = Callable[[Any], bytes]
_Bytes: TypeAlias = bytes | bytearray | memoryview
_DESCRIPTORS = ("CUtensorMap_st", "CUtensorMap")
_LARGEST = 1 << 16  # bytes: twice what CUDA takes as the arguments of a kernel


def make_by_value(parameter: Parameter, make_converter: Callable[[Parameter], Converter]) -> Converter:
    """Return the converter of a parameter whose type is no scalar, or is ``float2`` or ``double2``.

    Args:
        parameter: The parameter.
        make_converter: Makes those of fields.
    """
    type_, bits = parameter.type.strip(), 8 * parameter.size
    if type_.startswith("enum ") and parameter.size in (1, 2, 4, 8):
        # Enumerators are their values, whatever type underlies them.
        expected = "an enumerator or its value as an integer"
        hint = f"{parameter.type} has {parameter.size} bytes"
        return partial(_encode_integer, parameter, -(1 << bits - 1), (1 << bits) - 1, expected, hint)
    if not is_supported(type_):
        return partial(_refuse, parameter)
    layout = _declared(parameter.definition) if parameter.definition else parse_type(type_)
    if layout is not None and layout.size != parameter.size:
        layout = None  # another type with the name of a built-in one
    if layout is not None and layout.kind in ("i16", "u16"):
        low, high = (-(1 << 127), (1 << 127) - 1) if layout.kind == "i16" else (0, (1 << 128) - 1)
        return partial(_encode_integer, parameter, low, high, "an integer", f"{parameter.type} holds {low} to {high}")
    layout = layout if layout is not None and layout.kind == "structure" else None
    return Structure(parameter, layout, make_converter)


def _declared(definition: str) -> Layout | None:
    try:
        layout = parse_definitions(definition)
    except ValueError:
        return None  # of a later version, which knows more types
    return layout if layout.size <= _LARGEST else None


def _refuse(parameter: Parameter, argument: Any) -> NoReturn:
    what = f"cannot pass {type(argument).__name__}: parameters of type {parameter.type.strip()} are not supported"
    raise argument_error(parameter, "unsupported", what, "let the kernel take a pointer to the value")


def _encode_integer(parameter: Parameter, low: int, high: int, expected: str, hint: str, argument: Any) -> bytes:
    try:
        value = operator.index(argument.value if isinstance(argument, enum.Enum) else argument)
    except TypeError:
        raise type_error(parameter, argument, expected) from None
    if not low <= value <= high:
        raise argument_error(parameter, "range", f"{value} is out of range", hint)
    return (value & (1 << 8 * parameter.size) - 1).to_bytes(parameter.size, "little")


class Structure:
    """Converts structures: values whose type has the layout, bytes, or values of the fields where these are known.

    Args:
        parameter: The parameter, or a part of one.
        layout: The layout of its type if that is known.
        make_converter: Makes the converters of fields.
    """

    def __init__(
        self, parameter: Parameter, layout: Layout | None, make_converter: Callable[[Parameter], Converter]
    ) -> None:
        self._parameter, self._layout, self._make_converter = parameter, layout, make_converter
        self._encode_fields = None if layout is None else self._fields_encoder(layout)
        self._layouts: dict[Any, Layout] = {}  # of types and dtypes that were checked

    def __call__(self, argument: Any) -> bytes:
        """Return the bytes of an argument, exactly as many as the type has."""
        if isinstance(argument, _Bytes):
            return self._check_size(argument)
        if isinstance(argument, ctypes.Structure | ctypes.Union | ctypes.Array):
            self._check_layout(type(argument))
            return memoryview(argument).tobytes()
        if isinstance(argument, np.void | np.ndarray) and argument.ndim == 0 and argument.dtype.fields is not None:
            self._check_layout(argument.dtype)
            return argument.tobytes()
        if isinstance(argument, np.void):
            return self._check_size(argument.tobytes())
        if isinstance(argument, np.generic) and from_numpy_name(argument.dtype.name) == self._parameter.type:
            return self._check_size(argument.tobytes())  # a number of ml_dtypes
        is_dataclass = dataclasses.is_dataclass(argument)
        if self._encode_fields and (is_dataclass or isinstance(argument, Mapping | Sequence | np.ndarray)):
            return self._encode_fields(argument)
        if is_dataclass:
            return self._fields_encoder(self._check_layout(type(argument)))(argument)
        if self._parameter.type in _DESCRIPTORS:
            return self._encode_descriptor(argument)
        raise self._type_error(argument)

    def _type_error(self, argument: Any) -> ArgumentError:
        expected = "a ctypes structure, a NumPy structured scalar, a dataclass or bytes"
        if self._layout is not None:
            names = ", ".join(field.name for field in self._layout.fields)
            expected = f"the values of {names}, a structure or bytes"
        elif self._parameter.type in _DESCRIPTORS:
            expected = "a tensor map descriptor or its bytes"
        return type_error(self._parameter, argument, expected)

    def _check_size(self, data: _Bytes) -> bytes:
        size = memoryview(data).nbytes
        if size != self._parameter.size:
            what = f"expected {self._parameter.size} bytes, got {size}"
            hint = f"pass bytes as {self._parameter.type} lies in memory"
            raise argument_error(self._parameter, "layout", what, hint)
        return bytes(data)  # whose memory need not be contiguous

    def _check_layout(self, kind: Any) -> Layout:
        """Return the layout of a Python type; check it against what is known of the parameter's, once."""
        if kind in self._layouts:
            return self._layouts[kind]
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
        return self._layouts.setdefault(kind, layout)

    def _encode_descriptor(self, argument: Any) -> bytes:
        kind, size = type(argument), self._parameter.size
        is_of_cuda = kind.__module__.partition(".")[0] == "cuda"
        if is_of_cuda and kind.__name__ == "CUtensorMap":
            return ctypes.string_at(argument.getPtr(), size)
        if is_of_cuda and kind.__name__ == "TensorMapDescriptor":
            from jitlto.cuda.libraries import ParamHolder

            holder = ParamHolder((argument,))  # copies it, as for cuda.core.launch: nothing else tells its bytes
            return ctypes.string_at(ctypes.c_void_p.from_address(holder.ptr).value or 0, size)
        raise self._type_error(argument)

    def _fields_encoder(self, layout: Layout) -> Converter:
        """Return a function that encodes values of the fields: a mapping, a dataclass or a sequence."""
        names = tuple(field.name for field in layout.fields)
        encoders = [
            (
                field.offset,
                field.offset + field.layout.size,
                self._encoder(f"{self._parameter.name}.{field.name}", field.layout),
            )
            for field in layout.fields
        ]

        def encode(argument: Any) -> bytes:
            if isinstance(argument, Mapping):
                given = tuple(argument)
                values = [argument[name] for name in names if name in argument]
            elif dataclasses.is_dataclass(argument):
                given = tuple(field.name for field in dataclasses.fields(argument))
                values = [getattr(argument, name) for name in names if name in given]
            elif isinstance(argument, str | bytes) or getattr(argument, "ndim", 1) != 1:
                raise self._type_error(argument)
            else:
                values = list(argument)
                given = names if len(values) == len(names) else (f"{len(values)} values",)
            if len(given) != len(names) or len(values) != len(names):
                what = f"expected the fields {', '.join(names)}, got {', '.join(map(str, given))}"
                raise argument_error(self._parameter, "layout", what, "give each field a value")
            data = bytearray(layout.size)
            for (begin, end, encoder), value in zip(encoders, values, strict=True):
                data[begin:end] = encoder(value)
            return bytes(data)

        return encode

    def _encoder(self, name: str, layout: Layout) -> Converter:
        """Return a function that encodes a field, which messages call ``name``, or an element of one."""
        part = Parameter(name, layout.type, layout.size, layout.alignment)
        if layout.kind in ("structure", "bytes"):
            return Structure(part, layout if layout.kind == "structure" else None, self._make_converter)
        if layout.element is None:
            return self._make_converter(part)
        return self._array_encoder(part, layout, self._encoder(f"{name}[]", layout.element))

    def _array_encoder(self, part: Parameter, layout: Layout, element: Converter) -> Converter:
        """Return a function that encodes a field that is an array."""
        extents, leaf = [], layout
        while leaf.element is not None:
            extents.append(leaf.size // leaf.element.size)
            leaf = leaf.element

        def encode(argument: Any) -> bytes:
            if isinstance(argument, np.ndarray) and argument.shape == (*extents,) and argument.dtype.isnative:
                if f"{argument.dtype.kind}{argument.dtype.itemsize}" == leaf.kind:
                    return argument.tobytes()
            elif isinstance(argument, bytes) and leaf.size == 1 and len(argument) == layout.size:
                return argument
            if not isinstance(argument, Sequence | np.ndarray | ctypes.Array) or isinstance(argument, str):
                raise type_error(part, argument, f"a sequence of {extents[0]} values")
            if len(argument) != extents[0]:
                what = f"expected {extents[0]} values, got {len(argument)}"
                raise argument_error(part, "layout", what, f"pass a sequence of {extents[0]} values")
            return b"".join(map(element, argument))

        return encode
