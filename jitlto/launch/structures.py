"""Conversion of structures by value: from ctypes, NumPy, dataclasses, bytes, and values of fields that are known."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from jitlto.base.errors import ArgumentError
from jitlto.base.layouts import Layout, find_difference
from jitlto.base.types import Parameter, from_numpy_name
from jitlto.launch.packed import Packed, to_bytes
from jitlto.launch.python_layouts import UnknownLayoutError, layout_of

#: Makes the converter of a parameter.
MakeConverter: TypeAlias = Callable[[Parameter], Callable[[Any], Any]]


class MakeError(Protocol):
    """Makes the error of a parameter."""

    def __call__(self, parameter: Parameter, case: str, what: str, hint: str) -> ArgumentError:
        """Return the error; ``case`` is the end of its code."""


class Structure:
    """Converts structures: values whose type has the layout, bytes, or values of the fields where these are known.

    Args:
        parameter: The parameter, or a part of one.
        layout: The layout of its type if that is known.
        make_converter, make_error: For fields, and for errors.
    """

    def __init__(
        self, parameter: Parameter, layout: Layout | None, make_converter: MakeConverter, make_error: MakeError
    ) -> None:
        self._parameter, self._layout = parameter, layout
        self._make_converter, self._make_error = make_converter, make_error
        self._encode_fields: Callable[[Any], bytes] | None = None
        if layout is not None:
            self._encode_fields = self._fields_encoder(layout)
        # How to encode a value whose type or dtype was checked.
        self._checked: dict[Any, Callable[[Any], Any]] = {}

    def __call__(self, argument: Any) -> Packed:
        return Packed.copy(self.encode(argument), self._parameter.size)

    def encode(self, argument: Any) -> Any:
        """Return an object whose buffer holds the bytes of an argument, exactly as many as the type has."""
        kind: Any = type(argument)
        encode = self._checked.get(kind)
        if encode is None:
            if isinstance(argument, np.void) or (kind is np.ndarray and argument.ndim == 0):
                kind = argument.dtype
                encode = self._checked.get(kind)
            encode = encode or self._find_encoder(argument, kind)
        return encode(argument)

    def _find_encoder(self, argument: Any, kind: Any) -> Callable[[Any], Any]:
        """Return how to encode an argument of a type that is new here, and remember it if it holds for the type."""
        if isinstance(argument, _Bytes):
            return self._checked.setdefault(kind, self._check_size)
        if isinstance(argument, ctypes.Structure | ctypes.Union | ctypes.Array):
            self._check_layout(kind)
            return self._checked.setdefault(kind, _as_it_is)
        if isinstance(kind, np.dtype) and kind.fields is not None:
            self._check_layout(kind)
            return self._checked.setdefault(kind, _numpy_bytes)
        if isinstance(argument, np.void) or (
            isinstance(argument, np.generic) and from_numpy_name(argument.dtype.name) == self._parameter.type
        ):
            return lambda value: self._check_size(value.tobytes())  # bytes, or a number of ml_dtypes
        if self._encode_fields and (
            isinstance(argument, Mapping | Sequence | np.ndarray) or dataclasses.is_dataclass(argument)
        ):
            return self._encode_fields
        if dataclasses.is_dataclass(argument):
            encode = self._fields_encoder(self._check_layout(kind))
            return self._checked.setdefault(kind, encode)
        if self._parameter.type in _DESCRIPTORS:
            return self._encode_descriptor
        raise self._type_error(argument)

    def _type_error(self, argument: Any) -> ArgumentError:
        expected = "a ctypes structure, a NumPy structured scalar, a dataclass or bytes"
        if self._layout is not None:
            names = ", ".join(field.name for field in self._layout.fields)
            expected = f"the values of {names}, a structure or bytes"
        elif self._parameter.type in _DESCRIPTORS:
            expected = "a tensor map descriptor or its bytes"
        what = f"expected {expected}, got {type(argument).__name__}"
        return self._make_error(self._parameter, case="type", what=what, hint=f"pass {expected}")

    def _check_size(self, data: bytes | bytearray | memoryview) -> Any:
        size = memoryview(data).nbytes
        if size != self._parameter.size:
            what = f"expected {self._parameter.size} bytes, got {size}"
            raise self._make_error(
                self._parameter, case="layout", what=what, hint=f"pass bytes as {self._parameter.type} lies in memory"
            )
        return data.tobytes() if isinstance(data, memoryview) else data  # which need not be contiguous

    def _check_layout(self, kind: Any) -> Layout:
        """Return the layout of a Python type; check it against what is known of the parameter's."""
        parameter, name = self._parameter, "the dtype" if isinstance(kind, np.dtype) else kind.__name__
        try:
            layout = layout_of(kind)
        except UnknownLayoutError as error:
            raise self._make_error(
                parameter, case="layout", what=str(error), hint="pass a structure of such types, or bytes"
            ) from None
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
            raise self._make_error(parameter, case="layout", what=difference, hint=hint)
        return layout

    def _encode_descriptor(self, argument: Any) -> Any:
        try:
            return self._check_size(_descriptor_bytes(argument, self._parameter.size))
        except TypeError:
            raise self._type_error(argument) from None

    def _fields_encoder(self, layout: Layout) -> Callable[[Any], bytes]:
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
                raise self._make_error(self._parameter, case="layout", what=what, hint="give each field a value")
            data = bytearray(layout.size)
            for (begin, end, encoder), value in zip(encoders, values, strict=True):
                data[begin:end] = encoder(value)
            return bytes(data)

        return encode

    def _encoder(self, name: str, layout: Layout) -> Callable[[Any], Any]:
        """Return a function that encodes a field, which messages call ``name``, or an element of one."""
        part = Parameter(name, layout.type, layout.size, layout.alignment)
        if layout.kind == "structure" or layout.kind == "bytes":
            known = layout if layout.kind == "structure" else None
            return Structure(part, known, self._make_converter, self._make_error).encode
        if layout.element is None:
            convert = self._make_converter(part)
            return lambda value: to_bytes(convert(value), layout.size)
        element = self._encoder(f"{name}[]", layout.element)
        return self._array_encoder(part, layout, element)

    def _array_encoder(self, part: Parameter, layout: Layout, element: Callable[[Any], Any]) -> Callable[[Any], bytes]:
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
                what = f"expected {extents[0]} values, got {type(argument).__name__}"
                raise self._make_error(part, case="type", what=what, hint=f"pass a sequence of {extents[0]} values")
            if len(argument) != extents[0]:
                what = f"expected {extents[0]} values, got {len(argument)}"
                raise self._make_error(part, case="layout", what=what, hint=f"pass a sequence of {extents[0]} values")
            return b"".join(map(element, argument))

        return encode


_Bytes = bytes | bytearray | memoryview
_DESCRIPTORS = ("CUtensorMap_st", "CUtensorMap")


def _as_it_is(argument: Any) -> Any:
    return argument


def _numpy_bytes(argument: Any) -> bytes:
    data: bytes = argument.tobytes()
    return data


def _descriptor_bytes(argument: Any, size: int) -> bytes:
    """Return the bytes of a tensor map descriptor of ``cuda.core`` or ``cuda.bindings``.

    Raises:
        TypeError: If it is none.
    """
    name, module = type(argument).__name__, type(argument).__module__.partition(".")[0]
    if module == "cuda" and name == "CUtensorMap":
        return ctypes.string_at(argument.getPtr(), size)
    if module == "cuda" and name == "TensorMapDescriptor":
        from jitlto.cuda.libraries import ParamHolder

        holder = ParamHolder((argument,))  # which copies it
        return ctypes.string_at(ctypes.c_void_p.from_address(holder.ptr).value or 0, size)
    raise TypeError(name)
