"""Stand-ins for the arrays and streams of other libraries, with the attributes that those have and no device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from copy import copy
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np


class CupyArray:
    """An array as CuPy shows it."""

    def __init__(self, typestr: str = "<f4", *, contiguous: bool = True, size: int = 4, address: int = 4096) -> None:
        self.dtype = np.dtype(typestr)
        self._c_contiguous = contiguous
        self.size = size
        self.data = SimpleNamespace(ptr=address)
        self.reads = 0

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.reads += 1
        strides = None if self._c_contiguous else (self.dtype.itemsize * 2,)
        data = (self.data.ptr if self.size else 0, False)
        return {"shape": (self.size,), "typestr": self.dtype.str, "data": data, "strides": strides, "version": 3}


CupyArray.__module__, CupyArray.__name__ = "cupy._core.core", "ndarray"


class TorchDtype:
    """A dtype as PyTorch's: compared by identity."""

    def __init__(self, typestr: str) -> None:
        self.typestr = typestr

    def __str__(self) -> str:
        return f"torch.{next(name for name, dtype in vars(TORCH).items() if dtype is self)}"


TORCH = SimpleNamespace(float32=TorchDtype("<f4"), float64=TorchDtype("<f8"), int32=TorchDtype("<i4"),
                        complex64=TorchDtype("<c8"), bfloat16=TorchDtype("<V2"), float8=TorchDtype(""))  # fmt: skip


def _contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[number + 1 :]) for number in range(len(shape)))


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = zip(shape, strides, _contiguous_strides(shape), strict=True)
    return 0 in shape or all(extent == 1 or stride == wanted for extent, stride, wanted in expected)


class TorchTensor:
    """A tensor as PyTorch shows it; it may have no storage, or no memory."""

    def __init__(
        self,
        dtype: TorchDtype = TORCH.float32,
        *,
        contiguous: bool = True,
        size: int = 4,
        address: int = 4096,
        cuda: bool = True,
        gradient: bool = False,
        storage: bool = True,
        conjugate: bool = False,
        negative: bool = False,
        shape: tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.dtype, self.is_cuda, self.requires_grad = dtype, cuda, gradient
        self.shape = (size,) if shape is None else shape
        self._given = strides
        self._contiguous = contiguous and (strides is None or _is_contiguous(self.shape, strides))
        self._size, self._address, self._storage = prod(self.shape), address, storage
        self._conjugate = conjugate and dtype.typestr == "<c8"
        self._negative = negative and size < 2
        self._extents = (ctypes.c_int64 * (2 * len(self.shape)))()
        self.reads = 0

    @property
    def strides(self) -> tuple[int, ...]:
        """Those that it was made with, or what it is said to be."""
        return self._given or (_contiguous_strides(self.shape) if self._contiguous else (2,))

    def is_conj(self) -> bool:
        """Whether the memory holds its conjugate."""
        return self._conjugate

    def is_neg(self) -> bool:
        """Whether the memory holds its negative, as for the imaginary part of a conjugate."""
        return self._negative

    def is_contiguous(self) -> bool:
        """Whether it is C-contiguous."""
        return _is_contiguous(self.shape, self.strides)

    def extents(self) -> int:
        """The address of its extents, before its strides."""
        self._extents[:] = (*self.shape, *self.strides)
        return ctypes.addressof(self._extents)

    def data_ptr(self) -> int:
        """The address, read by Python."""
        self.reads += 1
        return self.pointer()

    def pointer(self) -> int:
        """The address; 0 of an empty tensor."""
        if not self._storage:
            raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")
        return self._address if self._size else 0

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.reads += 1
        if not self.is_cuda:
            raise AttributeError("Can't get __cuda_array_interface__ on non-CUDA tensor type")
        if self.requires_grad:
            raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad")
        if not self.dtype.typestr:
            raise KeyError(self.dtype)
        strides = None if self._contiguous else tuple(int(self.dtype.typestr[2:]) * stride for stride in self.strides)
        data = (self.pointer(), False)
        return {"shape": self.shape, "typestr": self.dtype.typestr, "data": data, "strides": strides, "version": 2}

    def detach(self) -> TorchTensor:
        """The same without a gradient; what it reads counts here."""
        self.reads += 1
        detached = copy(self)
        detached.requires_grad = False
        return detached

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0) if self.is_cuda else (1, 0)

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")


TorchTensor.__module__, TorchTensor.__name__ = "torch", "Tensor"


class DLTensor(ctypes.Structure):
    """``DLTensor`` of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


Describe = Callable[[Any, DLTensor], None]


class ExchangeApi(ctypes.Structure):
    """``DLPackExchangeAPI`` of dlpack.h 1.2, with the one function that launches use."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("older", ctypes.c_void_p),
        ("others", ctypes.c_void_p * 3), ("describe", ctypes.c_void_p), ("stream", ctypes.c_void_p),
    )  # fmt: skip


_EXCHANGE_API = b"dlpack_exchange_api"
_FUNCTION = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
_kept: list[object] = []


def exchange_api(describe: Describe | None, major: int = 1) -> object:
    """Return a capsule as types have as ``__dlpack_c_exchange_api__``; without a function, that is NULL."""

    def call(array: Any, out: Any) -> int:
        try:
            describe(array, out.contents)  # type: ignore[misc]
        except RuntimeError:
            return -1
        return 0

    function = _FUNCTION(call)
    api = ExchangeApi(major, 2, describe=ctypes.cast(function, ctypes.c_void_p) if describe else None)
    _kept.extend((function, api))  # a capsule keeps nothing
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(ctypes.addressof(api), _EXCHANGE_API, None)


def describe_of(kind: type) -> Describe:
    """Return the function of a type's ``__dlpack_c_exchange_api__``."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    api = ExchangeApi.from_address(get(kind.__dlpack_c_exchange_api__, _EXCHANGE_API))  # type: ignore[attr-defined]
    function = _FUNCTION(api.describe)

    def describe(array: Any, out: DLTensor) -> None:
        assert function(array, ctypes.byref(out)) == 0

    return describe


_CODES = {"f": 2, "i": 0, "c": 5, "V": 4}
#: The tensors that were described to a program in C.
described: list[object] = []


def describe(tensor: TorchTensor, out: DLTensor) -> None:
    """Describe a tensor, as PyTorch does for programs in C."""
    described.append(tensor)
    kind = tensor.dtype.typestr
    out.code, out.bits = (_CODES[kind[1]], 8 * int(kind[2:])) if kind else (12, 8)
    out.lanes, out.device_type, out.ndim = 1, 2 if tensor.is_cuda else 1, len(tensor.shape)
    out.shape = tensor.extents()
    out.strides = out.shape + 8 * out.ndim
    out.data, out.byte_offset = tensor.pointer(), 0


TorchTensor.__dlpack_c_exchange_api__ = exchange_api(describe)  # type: ignore[attr-defined]


class NumbaArray:
    """A device array as Numba shows it."""

    def __init__(self, typestr: str = "<f4", *, contiguous: bool = True, size: int = 4, address: int = 4096) -> None:
        self.dtype = np.dtype(typestr)
        self.size = size
        self._dummy = SimpleNamespace(flags={"C_CONTIGUOUS": contiguous or not size})
        self.gpu_data = SimpleNamespace(device_ctypes_pointer=SimpleNamespace(value=address if size else None))
        self._strides = None if contiguous else (self.dtype.itemsize * 2,)
        self.reads = 0

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.reads += 1
        data = (self.gpu_data.device_ctypes_pointer.value or 0, False)
        return {"shape": (self.size,), "typestr": self.dtype.str, "data": data, "strides": self._strides, "version": 3}


NumbaArray.__module__, NumbaArray.__name__ = "numba.cuda.cudadrv.devicearray", "DeviceNDArray"


class JaxArray:
    """An array as JAX shows it: immutable, without strides, and without the interface where that has no such dtype."""

    def __init__(self, typestr: str = "<f4", *, size: int = 4, address: int = 4096, deleted: bool = False) -> None:
        self._typestr, self._size, self._address, self._deleted = typestr, size, address, deleted
        self.reads = 0

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.reads += 1
        if self._deleted:
            raise RuntimeError("Array has been deleted.")
        if self._typestr == "<V2":
            raise AttributeError("__cuda_array_interface__ is not supported for BF16 buffers.")
        return {"shape": (self._size,), "typestr": self._typestr, "data": (self._address, True), "version": 2}


JaxArray.__module__, JaxArray.__name__ = "jaxlib._jax", "ArrayImpl"


class CupyStream:
    """A stream as CuPy shows it: it cannot be a key of a dict."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, handle: int) -> None:
        self.ptr = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.ptr)


CupyStream.__module__ = "cupy.cuda.stream"


class TorchStream:
    """A stream as PyTorch shows it."""

    def __init__(self, handle: int) -> None:
        self.cuda_stream = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.cuda_stream)


TorchStream.__module__ = "torch.cuda.streams"


class Handle:
    """A handle of the CUDA bindings."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __int__(self) -> int:
        return self._value


class NumbaStream:
    """A stream as Numba shows it."""

    def __init__(self, handle: int) -> None:
        self.handle = Handle(handle)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, int(self.handle))


NumbaStream.__module__ = "numba.cuda.cudadrv.driver"


class ProtocolStream:
    """A stream of an unknown library."""

    def __init__(self, handle: int) -> None:
        self.given = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.given)


STREAMS = (CupyStream, TorchStream, NumbaStream, ProtocolStream)
