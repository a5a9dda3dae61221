"""Converters of parameters that are no scalars of NumPy: structures, vector types, enums, 128-bit integers.

They return a NumPy scalar or, where there is none, a :class:`~jitlto.launch.packed.Packed`.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from jitlto.base.layouts import Layout, is_supported, parse_definitions, parse_type
from jitlto.base.types import Parameter
from jitlto.launch.packed import Packed, is_passed_on
from jitlto.launch.structures import MakeConverter, MakeError, Structure

_LARGEST = 1 << 16  # bytes: twice what CUDA takes as the arguments of a kernel


def make_by_value(parameter: Parameter, make_converter: MakeConverter, make_error: MakeError) -> Callable[[Any], Any]:
    """Return the converter of a parameter whose type is no scalar, or is ``float2`` or ``double2``."""
    type_ = parameter.type.strip()
    if type_.startswith("enum ") and parameter.size in (1, 2, 4, 8):
        return _Enum(parameter, make_error)
    if not is_supported(type_):
        return _Unsupported(parameter, make_error, f"parameters of type {type_}")
    if not is_passed_on():
        return _Unsupported(parameter, make_error, "structures with this version of cuda.core")
    layout = _declared(parameter.definition) if parameter.definition else parse_type(type_)
    if layout is not None and layout.size != parameter.size:
        layout = None  # another type with the name of a built-in one
    if layout is not None and layout.kind in ("i16", "u16"):
        return _WideInteger(parameter, layout, make_error)
    if layout is not None and layout.kind != "structure":
        layout = None
    return Structure(parameter, layout, make_converter, make_error)


def _declared(definition: str) -> Layout | None:
    try:
        layout = parse_definitions(definition)
    except ValueError:
        return None  # of a later version, which knows more types
    return layout if layout.size <= _LARGEST else None


class _Unsupported:
    """Refuses all arguments."""

    def __init__(self, parameter: Parameter, make_error: MakeError, what: str) -> None:
        self._parameter, self._error, self._what = parameter, make_error, what

    def __call__(self, argument: Any) -> NoReturn:
        what = f"cannot pass {type(argument).__name__}: {self._what} are not supported"
        raise self._error(
            self._parameter, case="unsupported", what=what, hint="let the kernel take a pointer to the value"
        )


class _Enum:
    """Converts enumerators: their values, whatever type underlies them."""

    def __init__(self, parameter: Parameter, make_error: MakeError) -> None:
        self._parameter, self._error = parameter, make_error
        bits = 8 * parameter.size
        self._low, self._high = -(1 << bits - 1), (1 << bits) - 1
        self._make = np.dtype(f"u{parameter.size}").type

    def __call__(self, argument: Any) -> Any:
        value = _index(self._parameter, argument, "an enumerator or its value as an integer", self._error)
        if not self._low <= value <= self._high:
            what, hint = f"{value} is out of range", f"{self._parameter.type} has {self._parameter.size} bytes"
            raise self._error(self._parameter, case="range", what=what, hint=hint)
        return self._make(value & self._high)


class _WideInteger:
    """Converts integers of 128 bits."""

    def __init__(self, parameter: Parameter, layout: Layout, make_error: MakeError) -> None:
        self._parameter, self._error = parameter, make_error
        self._signed = layout.kind == "i16"
        bits = 127 if self._signed else 128
        self._low, self._high = -(1 << bits) if self._signed else 0, (1 << bits) - 1

    def __call__(self, argument: Any) -> Packed:
        value = _index(self._parameter, argument, "an integer", self._error)
        if not self._low <= value <= self._high:
            hint = f"{self._parameter.type} holds {self._low} to {self._high}"
            raise self._error(self._parameter, case="range", what=f"{value} is out of range", hint=hint)
        return Packed.copy(value.to_bytes(16, "little", signed=self._signed), 16)


def _index(parameter: Parameter, argument: Any, expected: str, make_error: MakeError) -> int:
    try:
        return operator.index(argument.value if isinstance(argument, enum.Enum) else argument)
    except TypeError:
        what = f"expected {expected}, got {type(argument).__name__}"
        raise make_error(parameter, case="type", what=what, hint=f"pass {expected}") from None
