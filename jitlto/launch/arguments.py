"""Conversion of launch arguments according to the declared types of the kernel's parameters.

A converter is created once per parameter. It returns the bytes that the kernel reads, exactly as many as the parameter
has, or raises :class:`~jitlto.base.errors.ArgumentError`.
"""

import math
import operator
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from jitlto.base.errors import ArgumentError
from jitlto.base.types import Parameter, Scalar, cpp_name, find_scalar
from jitlto.cuda.libraries import driver
from jitlto.launch.argument_errors import argument_error, range_error, type_error

Converter: TypeAlias = "Callable[[Any], bytes]"

# DLDeviceType (dlpack.h): memory that a kernel can reach.
_CUDA_DEVICES = {2: "CUDA", 3: "CUDA pinned host", 13: "CUDA managed"}
# Classes of cuda.core, CuPy and cuda.bindings.
_TEXTURES = (
    "TextureObject", "SurfaceObject", "CUtexObject", "CUsurfObject", "cudaTextureObject_t", "cudaSurfaceObject_t",
)  # fmt: skip


def make_converter(parameter: Parameter) -> Converter:
    """Return the converter of one kernel parameter."""
    target = pointed_type(parameter)
    if target is not None:
        return _pointer(parameter, target)
    known = find_scalar(parameter.type.strip())
    if known is None:
        return _by_value(parameter)
    if known.typestr == "b1":
        return _boolean(parameter)
    if known.typestr[0] in "iu":
        return _integer(parameter, known)
    if known.typestr[0] == "c":
        return _complex(parameter, known)
    return _floating(parameter, known)


def _by_value(parameter: Parameter) -> Converter:
    from jitlto.launch.by_value import make_by_value  # imported lazily: most kernels take only scalars

    return make_by_value(parameter)


def pointed_type(parameter: Parameter) -> str | None:
    """Return the type that a pointer parameter points to; None if it is not a pointer."""
    type_ = parameter.type.strip()
    if not type_.endswith(("*", "&", "* const", "*const")) or type_.endswith("::*"):
        return None
    return type_.removesuffix("const").rstrip()[:-1].strip()


def _pointer(parameter: Parameter, target: str) -> Converter:
    known = find_scalar(target)
    expected = None if known is None else ("|" if known.size == 1 else "<") + known.typestr
    if known is not None and known.typestr == "bfloat16":
        expected = "<V2"  # NumPy's notation for a 2-byte type that it does not know
    constant = "const" in target.split()

    def convert(argument: Any) -> bytes:
        if hasattr(argument, "is_conj") and argument.is_cuda:
            return _tensor_address(parameter, argument, known).to_bytes(8, "little")
        try:
            interface = argument.__cuda_array_interface__
        except Exception:  # noqa: BLE001 - no such attribute, or a library's refusal, such as of a dtype
            return _address(parameter, argument, known, constant).to_bytes(8, "little")
        if expected is not None and interface["typestr"] != expected:
            raise _dtype_error(parameter, np.dtype(interface["typestr"]), known)
        pointer, readonly = interface["data"]
        if readonly and not constant:
            raise _read_only_error(parameter)
        strides = interface.get("strides")
        if strides is not None:
            itemsize = np.dtype(interface["typestr"]).itemsize
            _check_contiguous(parameter, interface["shape"], strides, itemsize)
        address = int(pointer) if pointer else _null_address(parameter, argument, interface["shape"])
        return address.to_bytes(8, "little")

    return convert


def _tensor_address(parameter: Parameter, tensor: Any, known: Scalar | None) -> int:
    """Return the address of a tensor of PyTorch: to show it by the interface takes longer than a launch."""
    try:
        if known is not None and _scalar_of(tensor.dtype) != known.typestr:
            raise _dtype_error(parameter, str(tensor.dtype).rpartition(".")[2], known)
        if not tensor.is_contiguous():
            raise _contiguity_error(parameter)
        address = int(tensor.data_ptr())
    except ArgumentError:
        raise
    except Exception as error:  # such as of a sparse one
        raise _export_error(parameter, tensor, error) from error
    if tensor.is_conj() or tensor.is_neg():
        case, name = ("conj", "conjugate") if tensor.is_conj() else ("neg", "negative")
        what, hint = f"the memory holds the {name} of the tensor", f"pass tensor.resolve_{case}()"
        raise argument_error(parameter, "conjugate", what, hint)
    return address or _null_address(parameter, tensor, tensor.shape)


@cache
def _scalar_of(dtype: Any) -> str:
    """Return the name of a dtype of PyTorch as :class:`Scalar` has it; empty for one that C++ has none for."""
    try:
        known = find_scalar(cpp_name(dtype))
    except TypeError:
        known = None
    return "" if known is None else known.typestr


def _null_address(parameter: Parameter, array: Any, shape: tuple[int, ...]) -> int:
    """Return the address of an array whose interface has none: it is empty, which CuPy's own attributes do not say."""
    if 0 not in shape:
        raise argument_error(parameter, "no-memory", "the array has no memory", "allocate it before the launch")
    return int(array.data.ptr) if is_cupy(type(array)) else 0


def is_cupy(kind: type) -> bool:
    """Return whether it is CuPy's type of arrays itself: subclasses may behave otherwise."""
    return kind.__module__.partition(".")[0] == "cupy" and kind.__name__ == "ndarray"


def _address(parameter: Parameter, argument: Any, known: Scalar | None, constant: bool) -> int:
    """Return the address of anything but a CUDA array: None, an address, a buffer or a DLPack tensor."""
    if argument is None:
        return 0
    if isinstance(argument, int | np.integer) and not isinstance(argument, bool):
        return _bare_address(parameter, int(argument))
    handle = getattr(argument, "handle", None)
    if handle is not None and getattr(argument, "is_device_accessible", False):
        return int(handle)
    device = getattr(argument, "__dlpack_device__", None)
    try:
        reachable = device is not None and device()[0] in _CUDA_DEVICES
    except Exception as error:  # such as PyTorch's of a tensor on the device "meta"
        raise _export_error(parameter, argument, error) from error
    if not reachable:
        if device is not None or hasattr(argument, "__array_interface__"):
            hint = "copy it to the device first, e.g. with cupy.asarray"
            raise argument_error(parameter, "host-memory", "the array is in host memory", hint)
        raise type_error(parameter, argument, "a device array, a buffer, an address or None")
    from jitlto.cuda.libraries import StridedMemoryView

    try:
        view = StridedMemoryView.from_dlpack(argument, stream_ptr=-1)
    except Exception as error:
        raise _export_error(parameter, argument, error) from error
    if known is not None and str(view.dtype) != _dtype_name(known):
        raise _dtype_error(parameter, view.dtype, known)
    if view.readonly and not constant:
        raise _read_only_error(parameter)
    if view.strides is not None:
        _check_contiguous(parameter, view.shape, view.strides, 1)  # DLPack counts strides in elements
    return int(view.ptr) or _null_address(parameter, argument, view.shape)


def _bare_address(parameter: Parameter, address: int) -> int:
    if not 0 <= address < 1 << 64:
        raise argument_error(parameter, "range", f"invalid address {address:#x}", "an address has 64 bits")
    if address == 0:
        return 0
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    status, _ = driver.cuPointerGetAttribute(attribute, address)
    if status == driver.CUresult.CUDA_ERROR_INVALID_VALUE:
        hint = "pass a device address, not one of ordinary host memory"
        raise argument_error(parameter, "host-memory", f"address {address:#x} is not memory known to CUDA", hint)
    return address


def _check_contiguous(parameter: Parameter, shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> None:
    if 0 in shape:
        return
    expected = item
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            raise _contiguity_error(parameter)
        expected *= extent


def _boolean(parameter: Parameter) -> Converter:
    def convert(argument: Any) -> bytes:
        if isinstance(argument, bool | np.bool_) or (isinstance(argument, int) and argument in (0, 1)):
            return bytes((bool(argument),))
        raise type_error(parameter, argument, "True or False")

    return convert


def _integer(parameter: Parameter, known: Scalar) -> Converter:
    letter = "bhiq"[known.size.bit_length() - 1]
    pack = struct.Struct("<" + (letter.upper() if known.typestr[0] == "u" else letter)).pack

    def convert(argument: Any) -> bytes:
        try:
            return pack(argument)
        except (struct.error, TypeError):
            handle = _object_handle(argument) if known.typestr == "u8" else None
        if handle is not None:
            return pack(handle)
        try:
            value = operator.index(argument)
        except TypeError:
            raise type_error(parameter, argument, "an integer") from None
        limits = np.iinfo(known.typestr)
        raise range_error(parameter, value, int(limits.min), int(limits.max))

    return convert


def _object_handle(argument: Any) -> int | None:
    """Return the handle of a texture or surface object, which to C++ is an ``unsigned long long``; None for another."""
    kind = type(argument)
    if kind.__module__.partition(".")[0] not in ("cuda", "cupy") or kind.__name__ not in _TEXTURES:
        return None
    handle = getattr(argument, "handle", None)  # of cuda.core
    return int(getattr(argument, "ptr", argument) if handle is None else handle)  # CuPy's, or a handle itself


def _floating(parameter: Parameter, known: Scalar) -> Converter:
    pack: Callable[[float], bytes]
    if known.typestr == "bfloat16":
        pack, high = _pack_bfloat16, float(np.uint32(0x7F7F0000).view(np.float32))
    else:
        pack = struct.Struct({"f2": "<e", "f4": "<f", "f8": "<d"}[known.typestr]).pack
        high = float(np.finfo(known.typestr).max)

    def convert(argument: Any) -> bytes:
        value = argument if type(argument) is float else _real(parameter, argument)
        if -high <= value <= high or not math.isfinite(value):
            return pack(value)
        raise range_error(parameter, value, -high, high)

    return convert


def _pack_bfloat16(value: float) -> bytes:
    """Round to nearest even, as ``__double2bfloat16`` does."""
    if math.isnan(value):
        return b"\xc0\x7f"
    single = np.float32(value)
    bits = int(single.view(np.uint32))
    if bits & 0xFFFF == 0x8000 and float(single) != value:
        # A tie only because of the first rounding: round towards the original value.
        bits += 1 if abs(value) > abs(float(single)) else -1
    return (bits + 0x7FFF + ((bits >> 16) & 1) >> 16 & 0xFFFF).to_bytes(2, "little")


def _complex(parameter: Parameter, known: Scalar) -> Converter:
    make: Any = np.dtype(known.typestr).type
    high = float(np.finfo(make).max)
    by_value = cache(lambda: _by_value(parameter))  # an array of two numbers, a structure or bytes

    def convert(argument: Any) -> bytes:
        if not isinstance(argument, int | float | complex | np.number):
            return by_value()(argument)
        try:
            value = complex(argument)
        except OverflowError:
            raise range_error(parameter, "the integer", -high, high) from None
        if any(abs(part) > high and not math.isinf(part) for part in (value.real, value.imag)):
            raise range_error(parameter, value, -high, high)
        return make(value).tobytes()  # type: ignore[no-any-return]

    return convert


def _real(parameter: Parameter, argument: Any) -> float:
    # float() would accept an array of one element, which is probably a mistake.
    if isinstance(argument, str | bytes | complex | np.complexfloating) or bool(getattr(argument, "ndim", 0)):
        raise type_error(parameter, argument, "a real number")
    try:
        return float(argument)
    except OverflowError:
        high = float(np.finfo(np.float64).max)
        raise range_error(parameter, "the integer", -high, high) from None
    except (TypeError, ValueError):
        raise type_error(parameter, argument, "a real number") from None


def _dtype_name(known: Scalar | None) -> str:
    if known is None or known.typestr == "bfloat16":
        return "bfloat16"
    return str(np.dtype(known.typestr))


def _export_error(parameter: Parameter, argument: object, error: Exception) -> ArgumentError:
    what = f"cannot export {type(argument).__name__} by DLPack: {error}"
    return argument_error(parameter, "export", what, "pass a plain array that shares its memory, or its address")


def _dtype_error(parameter: Parameter, dtype: object, expected: Scalar | None) -> ArgumentError:
    name = _dtype_name(expected)
    what = f"expected an array of {name}, got an array of {dtype}"
    return argument_error(parameter, "dtype", what, f"pass an array of {name}")


def _contiguity_error(parameter: Parameter) -> ArgumentError:
    hint = "make it contiguous, or pass its address if the kernel takes strides"
    return argument_error(parameter, "not-contiguous", "the array is not C-contiguous", hint)


def _read_only_error(parameter: Parameter) -> ArgumentError:
    hint = "the kernel may write through this parameter; pass a writable array"
    return argument_error(parameter, "read-only", "the array is read-only", hint)
