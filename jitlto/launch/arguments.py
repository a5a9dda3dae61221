"""Conversion of launch arguments according to the declared types of the kernel's parameters.

A converter is created once per parameter. It returns the bytes that the kernel reads, exactly as many as the parameter
has, or raises :class:`~jitlto.base.errors.ArgumentError`.
"""

import ctypes
import enum
import math
import operator
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any, NoReturn, TypeAlias

import numpy as np

from jitlto.base.errors import ArgumentError
from jitlto.base.types import (
    Parameter,
    Scalar,
    argument_error,
    find_scalar,
    from_numpy_name,
    range_error,
    type_error,
)
from jitlto.cuda.libraries import driver

Converter: TypeAlias = "Callable[[Any], bytes]"

_pack_address = struct.Struct("<Q").pack
# DLDeviceType (dlpack.h): memory that a kernel can reach.
_CUDA_DEVICES = {2: "CUDA", 3: "CUDA pinned host", 13: "CUDA managed"}
# Classes of cuda.core, CuPy and cuda.bindings.
_TEXTURES = (
    "TextureObject", "SurfaceObject", "CUtexObject", "CUsurfObject", "cudaTextureObject_t", "cudaSurfaceObject_t",
)  # fmt: skip
_DESCRIPTORS = ("CUtensorMap_st", "CUtensorMap")
# Elements of vectors, and of arrays that stand for them as well: their bits, and bytes of either sign.
_ALIKE = {
    "__half": "unsigned short", "__nv_bfloat16": "unsigned short", "char": "unsigned char", "unsigned char": "char",
}  # fmt: skip


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
        limits, read = np.iinfo(known.typestr), _read_word if known.typestr == "u8" else operator.index
        return _integer(parameter, known.size, int(limits.min), int(limits.max), read)
    if known.typestr[0] == "c":
        return _complex(parameter, known)
    return _floating(parameter, known)


def pointed_type(parameter: Parameter) -> str | None:
    """Return the type that a pointer parameter points to; None if it is not a pointer."""
    type_ = parameter.type.strip()
    if not type_.endswith(("*", "&", "* const", "*const")) or type_.endswith("::*"):
        return None
    return type_.removesuffix("const").rstrip()[:-1].strip()


class Pointer:
    """Conversion of arrays, buffers and addresses for a pointer to a type."""

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
            shown = argument.__cuda_array_interface__
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


def _integer(
    parameter: Parameter, size: int, low: int, high: int, read: Callable[[Any], int], expected: str = "an integer"
) -> Converter:
    """Return the converter of a number in a range; ``read`` returns that of an argument, or raises TypeError."""
    mask = (1 << 8 * size) - 1

    def convert(argument: Any) -> bytes:
        try:
            value = read(argument)
        except TypeError:
            raise type_error(parameter, argument, expected) from None
        if not low <= value <= high:
            raise range_error(parameter, value, low, high)
        return (value & mask).to_bytes(size, "little")

    return convert


def _read_word(argument: Any) -> int:
    """Return an integer, or the handle of a texture or surface object, which to C++ is an ``unsigned long long``."""
    try:
        return operator.index(argument)
    except TypeError:
        kind = type(argument)
        if kind.__name__ not in _TEXTURES or kind.__module__.partition(".")[0] not in ("cuda", "cupy"):
            raise
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
    by_value = cache(partial(_by_value, parameter))  # an array of two numbers, a structure or bytes

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


def _by_value(parameter: Parameter) -> Converter:
    """Return the converter of a parameter whose type is no scalar, or is ``float2`` or ``double2``.

    A structure is a value of ctypes, a structured scalar of NumPy, or bytes, with the size and alignment of the
    kernel's; nothing else is known of it.
    """
    from jitlto.base.layouts import INTEGERS_128, find_vector, is_supported  # imported lazily: most are scalars

    type_, bits = parameter.type.strip(), 8 * parameter.size
    if type_.startswith("enum ") and parameter.size in (1, 2, 4, 8):
        # Enumerators are their values, whatever type underlies them.
        low, high, expected = -(1 << bits - 1), (1 << bits) - 1, "an enumerator or its value as an integer"
        return _integer(parameter, parameter.size, low, high, _read_enumerator, expected)
    if not is_supported(type_):
        return partial(_refuse, parameter)
    if type_ in INTEGERS_128 and bits == 128:
        low, high = (-(1 << 127), (1 << 127) - 1) if INTEGERS_128[type_] else (0, (1 << 128) - 1)
        return _integer(parameter, parameter.size, low, high, operator.index)
    vector = find_vector(type_)
    if vector is not None and vector[0].size * vector[1] != parameter.size:
        vector = None  # another type with the name of a built-in one
    return _structure(parameter, None if vector is None else vector[0].name)


def _read_enumerator(argument: Any) -> int:
    return operator.index(argument.value if isinstance(argument, enum.Enum) else argument)


def _refuse(parameter: Parameter, argument: Any) -> NoReturn:
    what = f"cannot pass {type(argument).__name__}: parameters of type {parameter.type.strip()} are not supported"
    raise argument_error(parameter, "unsupported", what, "let the kernel take a pointer to the value")


def _structure(parameter: Parameter, element: str | None) -> Converter:
    """Return the converter of a structure, or of a vector with such elements."""
    check = cache(partial(_check_layout, parameter, element is not None))
    expected = "a ctypes structure, a NumPy structured scalar or bytes"
    if parameter.type in _DESCRIPTORS:
        expected = "a CUtensorMap of cuda.bindings or its bytes"
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
        elif parameter.type in _DESCRIPTORS and isinstance(argument, driver.CUtensorMap):
            argument = ctypes.string_at(argument.getPtr(), parameter.size)
        if not isinstance(argument, bytes | bytearray | memoryview):
            raise type_error(parameter, argument, expected)
        made = bytes(argument)  # the memory need not be contiguous
        if len(made) != parameter.size:
            raise argument_error(parameter, "layout", f"expected {parameter.size} bytes, got {len(made)}", hint)
        return made

    return convert


def _check_layout(parameter: Parameter, is_vector: bool, kind: Any) -> None:
    """Check size and alignment of a type of ctypes or NumPy; vectors have alignments that no type of Python has."""
    name = "the dtype" if isinstance(kind, np.dtype) else kind.__name__
    # Only some types of Python can be aligned to more than 8 bytes.
    lowest = 1 if parameter.alignment > 8 else parameter.alignment
    what = ""
    try:
        if isinstance(kind, np.dtype):
            size, alignment = kind.itemsize, _alignment(kind)
        else:
            with suppress(TypeError, NotImplementedError):  # bit fields, typed pointers, base classes
                _alignment(np.dtype(kind))
            size, alignment = ctypes.sizeof(kind), ctypes.alignment(kind)
        if size != parameter.size:
            what = f"{name} has {size} bytes, {parameter.type} has {parameter.size}"
        elif not (is_vector or parameter.type in _DESCRIPTORS or lowest <= alignment <= parameter.alignment):
            what = f"{name} is aligned to {alignment} bytes, {parameter.type} to {parameter.alignment}"
    except ValueError as error:
        what = f"{name}: {error}"
    if what:
        hint = "declare the fields as in C++, a dtype with align=True; bytes of the right number are taken as they are"
        raise argument_error(parameter, "layout", what, hint)


def _alignment(dtype: np.dtype[Any]) -> int:
    """Return the alignment that the fields of a dtype have, whether it was made with ``align`` or not.

    Raises:
        ValueError: If no kernel could read it.
    """
    if dtype.subdtype is not None:
        return _alignment(dtype.subdtype[0])
    if dtype.fields is None:
        if dtype.hasobject or not dtype.isnative:
            raise ValueError("it holds Python objects, or is not in the byte order of the device")
        return 1 if dtype.kind == "V" else dtype.alignment
    fields = [(offset, _alignment(inner)) for inner, offset, *_ in dtype.fields.values()]
    return 1 if any(offset % each for offset, each in fields) else max((each for _, each in fields), default=1)
