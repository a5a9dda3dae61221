"""Conversion of launch arguments according to the declared types of the kernel's parameters.

A converter is created once per parameter. It returns the bytes that the kernel reads, exactly as many as the parameter
has, or raises :class:`~jitlto.base.errors.ArgumentError`.
"""

import math
import operator
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from jitlto.base.errors import ArgumentError
from jitlto.base.types import Parameter, Scalar, argument_error, find_scalar, range_error, type_error
from jitlto.cuda.libraries import driver

Converter: TypeAlias = "Callable[[Any], bytes]"

_pack_address = struct.Struct("<Q").pack
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
        return Pointer(parameter, target).convert
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


class Pointer:
    """Conversion of arrays, buffers and addresses for a pointer.

    Args:
        parameter: The pointer.
        target: The type that it points to.
    """

    def __init__(self, parameter: Parameter, target: str) -> None:
        known = find_scalar(target)
        self.parameter = parameter
        self.dtype = None if known is None else _dtype_name(known.typestr)
        self._typestr = None if known is None or known.typestr == "bfloat16" else np.dtype(known.typestr).str
        self._may_be_complex = known is None or known.typestr[0] == "c"
        self.is_constant = "const" in target.split()

    def convert(self, argument: Any) -> bytes:
        """Return the bytes of the address."""
        if hasattr(argument, "is_conj"):
            return _pack_address(self._read_tensor(argument))
        try:
            shown = show_array(argument)
        except Exception:  # noqa: BLE001 - no such attribute, or a library's refusal, such as of a dtype
            return _pack_address(self._read_other(argument))
        try:
            (address, is_read_only), strides = shown["data"], shown.get("strides")
            packed = _pack_address(address or 0)
            if shown.get("mask") is not None:
                raise ValueError("it has a mask of missing values, which a kernel does not see")
            if address and not is_read_only and strides is None and shown["typestr"] == self._typestr:
                return packed  # the usual case
            dtype, shape = _dtype_name(shown["typestr"]), shown["shape"]
            is_contiguous = strides is None or _is_contiguous(shape, strides, np.dtype(shown["typestr"]).itemsize)
        except Exception as error:
            raise self._export_error(argument, error, "__cuda_array_interface__") from error
        return _pack_address(self._check(argument, dtype, address, is_read_only, is_contiguous, shape))

    def _check(
        self, array: Any, dtype: Any, address: int | None, is_read_only: bool, is_contiguous: bool, shape: Sequence[int]
    ) -> int:
        """Return the address of an array, which has to fit."""
        if self.dtype is not None and (name := _dtype_name(dtype)) != self.dtype:
            what, hint = f"expected an array of {self.dtype}, got an array of {name}", f"pass an array of {self.dtype}"
            raise argument_error(self.parameter, "dtype", what, hint)
        if is_read_only and not self.is_constant:
            hint = "the kernel may write through this parameter; pass a writable array"
            raise argument_error(self.parameter, "read-only", "the array is read-only", hint)
        if not is_contiguous:
            hint = "make it contiguous, or pass its address if the kernel takes strides"
            raise argument_error(self.parameter, "not-contiguous", "the array is not C-contiguous", hint)
        if address:
            return int(address)
        if 0 not in shape:
            hint = "allocate it before the launch"
            raise argument_error(self.parameter, "no-memory", "the array has no memory", hint)
        return int(array.data.ptr) if is_cupy(type(array)) else 0  # which its interface does not show

    def _read_tensor(self, tensor: Any) -> int:
        """Return the address of a tensor of PyTorch: to show it by the interface takes longer than a launch."""
        if tensor.is_neg() or (self._may_be_complex and tensor.is_conj()):
            case, name = ("conj", "conjugate") if tensor.is_conj() else ("neg", "negative")
            what, hint = f"the memory holds the {name} of the tensor", f"pass tensor.resolve_{case}()"
            raise argument_error(self.parameter, "conjugate", what, hint)
        if not tensor.is_cuda:
            return self._read_other(tensor)
        try:
            dtype, address, is_contiguous = tensor.dtype, tensor.data_ptr(), tensor.is_contiguous()
        except Exception as error:  # such as of a sparse one
            raise self._export_error(tensor, error) from error
        if address and is_contiguous and _dtype_name(dtype) == self.dtype:  # the usual case
            return address  # type: ignore[no-any-return]
        return self._check(tensor, dtype, address, False, is_contiguous, tensor.shape)

    def _read_other(self, argument: Any) -> int:
        """Return the address of None, an address, a buffer or a DLPack tensor."""
        if argument is None:
            return 0
        if isinstance(argument, int | np.integer) and not isinstance(argument, bool):
            return self._check_address(int(argument))
        handle = getattr(argument, "handle", None)
        if handle is not None and getattr(argument, "is_device_accessible", False):
            return int(handle)
        device = getattr(argument, "__dlpack_device__", None)
        if device is None and not hasattr(argument, "__array_interface__"):
            raise type_error(self.parameter, argument, "a device array, a buffer, an address or None")
        from jitlto.cuda.libraries import StridedMemoryView

        try:
            is_reachable = device is not None and device()[0] in _CUDA_DEVICES
            view = StridedMemoryView.from_dlpack(argument, stream_ptr=-1) if is_reachable else None
            dtype = view.dtype if view is not None and self.dtype is not None else None
        except Exception as error:  # such as PyTorch's of a tensor on the device "meta", or a dtype unknown to NumPy
            raise self._export_error(argument, error) from error
        if view is None:
            hint = "copy it to the device first, e.g. with cupy.asarray"
            raise argument_error(self.parameter, "host-memory", "the array is in host memory", hint)
        # DLPack counts strides in elements.
        is_contiguous = view.strides is None or _is_contiguous(view.shape, view.strides, 1)
        return self._check(argument, dtype, view.ptr, view.readonly, is_contiguous, view.shape)

    def _check_address(self, address: int) -> int:
        if not 0 <= address < 1 << 64:
            raise argument_error(self.parameter, "range", f"invalid address {address:#x}", "an address has 64 bits")
        memory_type = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        if address and driver.cuPointerGetAttribute(memory_type, address)[0].name == "CUDA_ERROR_INVALID_VALUE":
            hint = "pass a device address, not one of ordinary host memory"
            what = f"address {address:#x} is not memory known to CUDA"
            raise argument_error(self.parameter, "host-memory", what, hint)
        return address

    def _export_error(self, argument: object, error: Exception, way: str = "DLPack") -> ArgumentError:
        what = f"cannot read {type(argument).__name__} by {way}: {type(error).__name__}: {error}"
        plain = "a plain array that shares its memory, or its address"
        hint = f"pass {'tensor.detach()' if getattr(argument, 'requires_grad', False) else plain}"
        return argument_error(self.parameter, "export", what, hint)


def show_array(array: Any) -> Any:
    """Return what the CUDA Array Interface shows of an array; raise an error if it has none."""
    return array.__cuda_array_interface__


def is_cupy(kind: type) -> bool:
    """Return whether it is CuPy's type of arrays itself: subclasses may behave otherwise."""
    return kind.__module__.partition(".")[0] == "cupy" and kind.__name__ == "ndarray"


@cache
def _dtype_name(dtype: Any) -> str:
    """Return the name of a dtype of NumPy or PyTorch, or of one that an interface shows."""
    if isinstance(dtype, str):
        # An interface shows a 2-byte number that NumPy does not know as "<V2", and a structure of 2 bytes as "|V2".
        return "bfloat16" if dtype in ("<V2", "bfloat16") else str(np.dtype(dtype))
    return str(dtype).rpartition(".")[2]


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], expected: int) -> bool:
    """Return whether strides are those of a C-contiguous array, whose last extent has the expected one."""
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected and 0 not in shape:
            return False
        expected *= extent
    return True


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
