"""Types of arrays whose address can be read for less than ``__cuda_array_interface__`` costs, and how.

An array of the right dtype that fulfils the conditions given here is accepted by the converter too
(:mod:`jitlto.launch.arguments`), with the same address. Other arrays are left to the converter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from jitlto.base.types import Scalar


@dataclass(frozen=True)
class ArrayType:
    """How the arrays of a type are read.

    Args:
        test: Python code that is true for an array ``{0}``, of the type number ``{1}``, whose address may be read.
        address: Python code for the address; 0 is left to the converter.
        read: The same as a function: the address, or None where the test is not true.
        find_dtype: Returns the library's dtype of a scalar; None if it has none.
        find_check: Returns a function that is true for arrays with the dtype of a scalar, in place of a part of the
            test; None if the library has none.
        checked_test: The rest of the test.
        methods: Methods that the code calls as functions, which is faster: by their names and the number of the type.
    """

    test: str
    address: str
    read: Callable[[Any], Any]
    find_dtype: Callable[[Scalar], Any]
    find_check: Callable[[Scalar], Callable[[Any], bool] | None] = lambda _: None
    checked_test: str = ""
    methods: tuple[str, ...] = ()

    def agrees(self, array: Any, address: int) -> bool | None:
        """Return whether it gives the address that the converter found; None if the test leaves the array to it."""
        try:
            found = self.read(array)
        except Exception:  # noqa: BLE001 - an attribute that this version of the library does not have
            return False
        return None if found is None else type(found) is int and found == address


def _numpy_dtype(scalar: Scalar) -> Any:
    return None if scalar.typestr == "bfloat16" else np.dtype(scalar.typestr)


def _torch_dtype(scalar: Scalar) -> Any:
    name = "bfloat16" if scalar.typestr == "bfloat16" else np.dtype(scalar.typestr).name
    return getattr(sys.modules["torch"], name, None)


# The classes of PyTorch's tensors on a device, without uint16 and the like, which have none.
_TORCH_CLASSES = {
    "b1": "BoolTensor", "i1": "CharTensor", "i2": "ShortTensor", "i4": "IntTensor", "i8": "LongTensor",
    "u1": "ByteTensor", "f2": "HalfTensor", "f4": "FloatTensor", "f8": "DoubleTensor", "bfloat16": "BFloat16Tensor",
}  # fmt: skip


def _torch_check(scalar: Scalar) -> Callable[[Any], bool] | None:
    """Return what ``isinstance(tensor, torch.cuda.FloatTensor)`` asks.

    One call tells dtype, device and layout, and that the tensor is not negated lazily.
    """
    kind = getattr(getattr(sys.modules["torch"], "cuda", None), _TORCH_CLASSES.get(scalar.typestr, ""), None)
    if kind is None or getattr(kind, "dtype", None) is not _torch_dtype(scalar):
        return None
    return getattr(kind, "__instancecheck__", None)


def _is_lazy(tensor: Any) -> bool:
    """Return whether a tensor of PyTorch stands for the conjugate or the negative of what its memory holds."""
    return bool(tensor.is_conj() or tensor.is_neg())


CUPY = ArrayType(
    "{0}._c_contiguous",
    "{0}.data.ptr",
    lambda array: array.data.ptr if array._c_contiguous else None,
    _numpy_dtype,
)
_NUMBA = ArrayType(
    "{0}._dummy.flags['C_CONTIGUOUS']",
    "{0}.gpu_data.device_ctypes_pointer.value or 0",
    lambda array: (array.gpu_data.device_ctypes_pointer.value or 0) if array._dummy.flags["C_CONTIGUOUS"] else None,
    _numpy_dtype,
)
TORCH = ArrayType(
    "{0}.is_cuda and is_contiguous{1}({0}) and not {0}.is_conj() and not {0}.is_neg()",
    "data_ptr{1}({0})",
    lambda tensor: tensor.data_ptr() if tensor.is_cuda and tensor.is_contiguous() and not _is_lazy(tensor) else None,
    _torch_dtype,
    _torch_check,
    "is_contiguous{1}({0})",
    ("is_contiguous", "data_ptr"),
)
# By library and name. Subclasses are not listed, because they may behave otherwise.
_TYPES = {
    ("cupy", "ndarray"): CUPY,
    ("numba", "DeviceNDArray"): _NUMBA,
    ("torch", "Tensor"): TORCH,
    ("torch", "Parameter"): TORCH,
}


def find_array_type(kind: type) -> ArrayType | None:
    """Return how arrays of a type are read; None if it is not in the table."""
    return _TYPES.get((kind.__module__.partition(".")[0], kind.__name__))


def element_typestr(scalar: Scalar) -> str:
    """Return the type string of arrays of a scalar in the array interface: with the byte order."""
    if scalar.typestr == "bfloat16":
        return "<V2"  # NumPy's notation for a 2-byte type that it does not know
    return ("|" if scalar.size == 1 else "<") + scalar.typestr
