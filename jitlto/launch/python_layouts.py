"""Layouts of Python's types for structures: ctypes, NumPy's structured dtypes, and dataclasses with C++ types."""

from __future__ import annotations

import ctypes
import dataclasses
import typing
from functools import lru_cache
from typing import Any

import numpy as np

from jitlto.base.layouts import Field, Layout, array, natural_alignment, parse_type, structure
from jitlto.base.types import from_numpy_name

_CTYPES_KINDS = {"?": "b", **dict.fromkeys("bhilq", "i"), **dict.fromkeys("cBHILQ", "u"), **dict.fromkeys("fd", "f")}


class UnknownLayoutError(ValueError):
    """A type has no layout that a kernel could read; the message says why."""


@lru_cache(maxsize=1024)
def layout_of(type_: Any) -> Layout:
    """Return the layout of a ctypes type, a dtype or a dataclass.

    Raises:
        UnknownLayoutError: If it has none.
    """
    if isinstance(type_, np.dtype):
        return _dtype_layout(type_)
    if dataclasses.is_dataclass(type_):
        return _dataclass_layout(type_)  # type: ignore[arg-type]  # a class
    return _ctypes_layout(type_)


def _dtype_layout(dtype: np.dtype[Any]) -> Layout:
    if dtype.hasobject:
        raise UnknownLayoutError(f"{dtype} holds Python objects")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        layout = _dtype_layout(base)
        for extent in reversed(shape):
            layout = array(layout, extent)
        return layout
    if dtype.fields is not None:
        members = [(name, *dtype.fields[name][:2]) for name in dtype.names or ()]
        fields = sorted(
            (Field(name, offset, _dtype_layout(member)) for name, member, offset in members),
            key=lambda field: field.offset,
        )
        return Layout("the dtype", dtype.itemsize, natural_alignment(fields), "structure", None, tuple(fields))
    if not dtype.isnative:
        raise UnknownLayoutError(f"{dtype} is not in the byte order of the device")
    if dtype.kind == "c":
        part = _dtype_layout(np.dtype(f"f{dtype.itemsize // 2}"))
        return structure(str(dtype), [("real", part), ("imag", part)], has_names=False)
    kind = f"{dtype.kind}{dtype.itemsize}"
    # What NumPy does not know, such as bfloat16 of ml_dtypes, has a name that C++ knows.
    named = parse_type(_CPP_NAMES.get(kind) or from_numpy_name(dtype.name) or "")
    return named or Layout(str(dtype), dtype.itemsize, 1, "bytes")


def _ctypes_layout(type_: Any) -> Layout:
    name, size, alignment = type_.__name__, ctypes.sizeof(type_), ctypes.alignment(type_)
    if hasattr(type_, "_swappedbytes_"):
        raise UnknownLayoutError(f"{name} is not in the byte order of the device")
    if issubclass(type_, ctypes.Array):
        return array(_ctypes_layout(type_._type_), type_._length_)
    if issubclass(type_, ctypes.Structure):
        declared = [field for base in reversed(type_.__mro__) for field in base.__dict__.get("_fields_", ())]
        if any(len(field) > 2 for field in declared):  # bit fields
            return Layout(name, size, alignment, "bytes")
        fields = (Field(n, getattr(type_, n).offset, _ctypes_layout(member)) for n, member, *_ in declared)
        return Layout(name, size, alignment, "structure", None, tuple(fields))
    kind = getattr(type_, "_type_", None)
    if isinstance(kind, str) and kind in _CTYPES_KINDS:
        if getattr(type_, "__ctype_le__", type_) is not type_:
            raise UnknownLayoutError(f"{name} is not in the byte order of the device")
        return _named(f"{_CTYPES_KINDS[kind]}{size}")
    if kind == "O":
        raise UnknownLayoutError("py_object holds Python objects")
    is_pointer = issubclass(type_, ctypes._Pointer) or kind in ("P", "z", "Z")
    return _named("pointer") if is_pointer else Layout(name, size, alignment, "bytes")


def _named(kind: str) -> Layout:
    layout = parse_type(_CPP_NAMES[kind])
    assert layout is not None  # noqa: S101 - the table's names are known
    return layout


def _dataclass_layout(class_: type) -> Layout:
    """Return the layout of a dataclass whose fields have the types of NumPy or ctypes, or name a C++ type."""
    try:
        hints = typing.get_type_hints(class_, include_extras=True)
    except Exception as error:
        raise UnknownLayoutError(f"the annotations of {class_.__name__} cannot be evaluated: {error}") from error
    members = [
        (field.name, _hint_layout(class_, field.name, hints[field.name])) for field in dataclasses.fields(class_)
    ]
    return structure(class_.__name__, members)


def _hint_layout(class_: type, name: str, hint: Any) -> Layout:
    if typing.get_origin(hint) is typing.Annotated:
        note, *extents = hint.__metadata__  # a type, and the extents of an array
        layout = parse_type(note) if isinstance(note, str) else _class_layout(note)
        if layout is not None and all(isinstance(extent, int) and extent > 0 for extent in extents):
            for extent in reversed(extents):
                layout = array(layout, extent)
            return layout
    layout = _class_layout(hint)
    if layout is None:
        what = f"the type of {class_.__name__}.{name} in C++ is not known: annotate it with a type of NumPy or ctypes, "
        raise UnknownLayoutError(f'{what}a dataclass, or Annotated[..., "a C++ type"]')
    return layout


def _class_layout(hint: Any) -> Layout | None:
    """Return the layout of a type in an annotation; None if it has none."""
    if isinstance(hint, np.dtype) or (isinstance(hint, type) and issubclass(hint, np.generic)):
        return layout_of(np.dtype(hint))
    kinds = (ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._SimpleCData, ctypes._Pointer)
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, kinds)):
        return layout_of(hint)
    return None


_CPP_NAMES = {
    "pointer": "void*", "b1": "bool", "f2": "__half", "f4": "float", "f8": "double",
    **{f"{sign}{size}": f"{word}int{8 * size}_t" for sign, word in (("i", ""), ("u", "u")) for size in (1, 2, 4, 8)},
}  # fmt: skip
