"""PyTorch's stable C interface, by which the compiled core reads tensors.

The functions are declared in ``torch/csrc/inductor/aoti_torch/c/shim.h``. They take the address of a C++ tensor, which
PyTorch does not give for a Python object. It is where the object has the pointer that ``Tensor._cdata`` names: behind
the header, before PyTorch 2.10 with a flag between them.
"""

import ctypes
import sys
from typing import Any

from jitlto.base.types import DTYPES, SCALARS, Scalar

# DLDataTypeCode (dlpack.h) by NumPy's letter, and that of bfloat16.
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6, "bfloat16": 4}


def dlpack_type(scalar: Scalar) -> tuple[int, int]:
    """Return the code and the bits of a type as DLPack has them."""
    return _CODES.get(scalar.typestr) or _CODES[scalar.typestr[0]], 8 * scalar.size


_DTYPES = {DTYPES[scalar.typestr]: dlpack_type(scalar) for scalar in SCALARS}  # by PyTorch's names
_GETTERS = ("device_type", "layout", "dtype", "dim", "sizes", "strides", "data_ptr")
_MOST_DTYPES = 64


class TorchInterface(ctypes.Structure):
    """``TorchInterface`` in ``_launch.c``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in _GETTERS),
        ("offset", ctypes.c_int64),
        ("cuda", ctypes.c_int32),
        ("strided", ctypes.c_int32),
        ("dtypes", (ctypes.c_uint8 * 2) * _MOST_DTYPES),
    )


def library() -> Any:
    """Return PyTorch's library, where the functions are found."""
    return ctypes.CDLL(sys.modules["torch"]._C.__file__)


def describe(tensor: Any) -> bytes | None:
    """Return a :class:`TorchInterface` for tensors of the type of ``tensor``; None if they cannot be read by it."""
    try:
        offset = _tensor_offset(tensor)
        if offset is None:
            return None
        found = TorchInterface(offset=offset)
        functions = library()
        for name in _GETTERS:
            setattr(found, name, ctypes.cast(functions[f"aoti_torch_get_{name}"], ctypes.c_void_p))
        found.cuda, found.strided = functions.aoti_torch_device_type_cuda(), functions.aoti_torch_layout_strided()
        for name, dlpack in _DTYPES.items():
            found.dtypes[functions[f"aoti_torch_dtype_{name}"]()][:] = dlpack
    except (OSError, AttributeError, IndexError):  # an older PyTorch, or a much newer one
        return None
    return bytes(found)


def _tensor_offset(tensor: Any) -> int | None:
    for offset in (object.__basicsize__, object.__basicsize__ + 8):
        if offset + 8 > type(tensor).__basicsize__:
            break
        if ctypes.c_void_p.from_address(id(tensor) + offset).value == tensor._cdata:
            return offset
    return None
