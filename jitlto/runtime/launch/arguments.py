"""Launch arguments: each converted by its parameter's declared type, never by guess.

A converter is prepared once for each parameter. It returns what ``cuda.core.launch`` passes on unchanged: an address as
a Python int, a scalar as a NumPy scalar of exactly the parameter's width.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from cuda.bindings import driver

from jitlto.errors import ArgumentError
from jitlto.model.types import Parameter, Scalar, scalar

Converter: TypeAlias = "Callable[[Any], Any]"

# DLDeviceType (dlpack.h): memory that a kernel can reach.
_CUDA_DEVICES = {2: "CUDA", 3: "CUDA pinned host", 13: "CUDA managed"}


def converter(parameter: Parameter) -> Converter:
    """The converter of one kernel parameter.

    Parameters
    ----------
    parameter : Parameter
        Its declaration.

    Returns
    -------
    callable
        From an argument to what ``cuda.core.launch`` takes; raises :class:`~jitlto.errors.ArgumentError`.
    """
    points_to = pointee(parameter)
    if points_to is not None:
        return _pointer(parameter, points_to)
    known = scalar(parameter.type.strip())
    if known is None:
        return _unsupported(parameter)
    if known.typestr == "b1":
        return _boolean(parameter)
    if known.typestr[0] in "iu":
        return _integer(parameter, known)
    if known.typestr[0] == "c":
        return _complex(parameter, known)
    return _bfloat16(parameter) if known.typestr == "bfloat16" else _floating(parameter, known)


def pointee(parameter: Parameter) -> str | None:
    """What a pointer parameter points to; None if it is no pointer."""
    type_ = parameter.type.strip()
    if not type_.endswith(("*", "&", "* const", "*const")):
        return None
    return type_.removesuffix("const").rstrip()[:-1].strip()


def _pointer(parameter: Parameter, points_to: str) -> Converter:
    known = scalar(points_to)
    expected = None if known is None else ("|" if known.size == 1 else "<") + known.typestr
    if known is not None and known.typestr == "bfloat16":
        expected = "<V2"  # what NumPy calls a type that it does not know
    constant = "const" in points_to.split()

    def convert(argument: Any) -> int:
        try:
            interface = argument.__cuda_array_interface__
        except Exception:  # noqa: BLE001 - no such attribute, or a library's refusal (PyTorch: a dtype, a gradient)
            return _address(parameter, argument, known, constant)
        if expected is not None and interface["typestr"] != expected:
            raise _wrong(
                parameter,
                f"an array of {np.dtype(interface['typestr'])}",
                f"give an array of {_dtype_name(known)}",
            )
        pointer, readonly = interface["data"]
        if readonly and not constant:
            raise _wrong(parameter, "a read-only array", "the kernel may write through this parameter")
        strides = interface.get("strides")
        if strides is not None:
            itemsize = np.dtype(interface["typestr"]).itemsize
            _require_contiguous(parameter, interface["shape"], strides, itemsize)
        return int(pointer or 0)

    return convert


def _address(parameter: Parameter, argument: Any, known: Scalar | None, constant: bool) -> int:
    """What is no CUDA array: nothing, a bare address, a buffer, something that speaks DLPack, or a mistake."""
    if argument is None:
        return 0
    if isinstance(argument, int | np.integer) and not isinstance(argument, bool):
        return _bare_address(parameter, int(argument))
    handle = getattr(argument, "handle", None)
    if handle is not None and getattr(argument, "is_device_accessible", False):
        return int(handle)
    device = getattr(argument, "__dlpack_device__", None)
    if device is None or device()[0] not in _CUDA_DEVICES:
        if device is not None or hasattr(argument, "__array_interface__"):
            raise _wrong(parameter, "an array in host memory", "copy it to the device first, e.g. with cupy.asarray")
        raise _wrong(parameter, f"a {type(argument).__name__}", "give a device array, a buffer, an address or None")
    from cuda.core.utils import StridedMemoryView

    try:
        view = StridedMemoryView.from_dlpack(argument, stream_ptr=-1)
    except Exception as error:
        raise _wrong(
            parameter, f"a {type(argument).__name__} that cannot be exported: {error}", "detach it, or pass its address"
        ) from error
    if known is not None and str(view.dtype) != _dtype_name(known):
        raise _wrong(parameter, f"an array of {view.dtype}", f"give an array of {_dtype_name(known)}")
    if view.readonly and not constant:
        raise _wrong(parameter, "a read-only array", "the kernel may write through this parameter")
    if view.strides is not None:
        _require_contiguous(parameter, view.shape, view.strides, 1)  # DLPack counts strides in elements
    return int(view.ptr)


def _bare_address(parameter: Parameter, address: int) -> int:
    if not 0 <= address < 1 << 64:
        raise _wrong(parameter, f"the address {address:#x}", "an address has 64 bits")
    if address == 0:
        return 0
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    status, _ = driver.cuPointerGetAttribute(attribute, address)
    if status == driver.CUresult.CUDA_ERROR_INVALID_VALUE:
        raise _wrong(
            parameter,
            f"the address {address:#x}, which is not memory that CUDA knows",
            "give a device address, not one of ordinary host memory",
        )
    return address


def _require_contiguous(parameter: Parameter, shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> None:
    if 0 in shape:
        return  # nothing to be apart
    expected = item
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            raise _wrong(
                parameter,
                "an array that is not C-contiguous",
                "make it contiguous, or pass its address if the kernel takes strides",
            )
        expected *= extent


def _boolean(parameter: Parameter) -> Converter:
    def convert(argument: Any) -> Any:
        if isinstance(argument, bool | np.bool_) or (isinstance(argument, int) and argument in (0, 1)):
            return np.bool_(argument)
        raise _wrong(parameter, _describe(argument), "give True or False")

    return convert


def _integer(parameter: Parameter, known: Scalar) -> Converter:
    make = np.dtype(known.typestr).type
    limits = np.iinfo(make)
    low, high = int(limits.min), int(limits.max)

    def convert(argument: Any) -> Any:
        try:
            value = operator.index(argument)
        except TypeError:
            raise _wrong(parameter, _describe(argument), "give an integer") from None
        if not low <= value <= high:
            raise _wrong(parameter, f"the integer {value}", f"it holds {low} to {high}")
        return make(value)

    return convert


def _floating(parameter: Parameter, known: Scalar) -> Converter:
    make = np.dtype(known.typestr).type
    high = float(np.finfo(make).max)

    def convert(argument: Any) -> Any:
        value = _real(parameter, argument)
        if -high <= value <= high or not math.isfinite(value):
            return make(value)
        raise _wrong(parameter, f"the number {value}", f"it holds -{high} to {high}")

    return convert


def _bfloat16(parameter: Parameter) -> Converter:
    high = float(np.uint32(0x7F7F0000).view(np.float32))

    def convert(argument: Any) -> Any:
        value = _real(parameter, argument)
        if math.isnan(value):
            return np.uint16(0x7FC0)
        if abs(value) > high and not math.isinf(value):
            raise _wrong(parameter, f"the number {value}", f"it holds -{high} to {high}")
        single = np.float32(value)
        bits = int(single.view(np.uint32))
        if bits & 0xFFFF == 0x8000 and float(single) != value:
            # Half way only by the first rounding: the second must go where the number itself lies.
            bits += 1 if abs(value) > abs(float(single)) else -1
        # Round to nearest even, as __double2bfloat16 does.
        return np.uint16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 & 0xFFFF)

    return convert


def _complex(parameter: Parameter, known: Scalar) -> Converter:
    make = np.dtype(known.typestr).type
    high = float(np.finfo(make).max)

    def convert(argument: Any) -> Any:
        if not isinstance(argument, int | float | complex | np.number):
            raise _wrong(parameter, _describe(argument), "give a complex number")
        try:
            value = complex(argument)
        except OverflowError:
            raise _wrong(parameter, "an integer that no double holds", f"it holds parts of -{high} to {high}") from None
        if any(abs(part) > high and not math.isinf(part) for part in (value.real, value.imag)):
            raise _wrong(parameter, f"the number {value}", f"it holds parts of -{high} to {high}")
        return make(value)

    return convert


def _real(parameter: Parameter, argument: Any) -> float:
    # An array of one element would convert, by guess.
    if isinstance(argument, str | bytes | complex | np.complexfloating) or bool(getattr(argument, "ndim", 0)):
        raise _wrong(parameter, _describe(argument), "give a real number")
    try:
        return float(argument)
    except (TypeError, ValueError, OverflowError):
        raise _wrong(parameter, _describe(argument), "give a real number that a double holds") from None


def _unsupported(parameter: Parameter) -> Converter:
    def convert(argument: Any) -> Any:
        raise _wrong(
            parameter,
            _describe(argument),
            f"{parameter.size}-byte structures by value cannot be passed: let the kernel take a pointer to one",
        )

    return convert


def _describe(argument: Any) -> str:
    return f"a {type(argument).__name__}"


def _dtype_name(known: Scalar | None) -> str:
    if known is None or known.typestr == "bfloat16":
        return "bfloat16"
    return str(np.dtype(known.typestr))


def _wrong(parameter: Parameter, given: str, hint: str) -> ArgumentError:
    return ArgumentError(f"cannot be {given}", where=f"parameter {parameter.name!r} ({parameter.type})", hint=hint)
