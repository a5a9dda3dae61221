"""Signatures as the compiled core knows them: how each parameter is packed, and how types of arrays are read.

The core reads arrays by CuPy's attributes or by what DLPack offers programs in C, all others by the converters of
:mod:`jitlto.launch.arguments`.
"""

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from jitlto.base.types import Parameter, find_scalar
from jitlto.cuda.device import is_own, stream_handle
from jitlto.cuda.libraries import Stream, driver
from jitlto.launch.arguments import Converter, is_cupy, pointed_type
from jitlto.launch.core import extension
from jitlto.launch.step import make_packing

# DLDataTypeCode (dlpack.h) by NumPy's letter, and that of bfloat16.
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6, "bfloat16": 4}
_CUDA = 12000  # the version of functions that are asked for: that of the oldest CUDA that jitlto supports


def core_signature(signature: tuple[Parameter, ...]) -> object:
    """Return what launchers of a signature have in ``_quick``; None where the core does not launch them."""
    core = extension()
    return None if core is None else make_signature(core, signature)


@cache
def make_signature(core: ModuleType, signature: tuple[Parameter, ...]) -> object:
    """Return the core's object for a signature; None if the driver has no such launches, or it is too long."""
    launch, is_capturing = find_functions("cuLaunchKernelEx", "cuStreamIsCapturing")
    parts = zip(signature, make_packing(signature).converters, strict=True)
    rows = tuple(_describe(core, parameter, convert) for parameter, convert in parts)
    try:
        return core.make_signature(rows, launch, is_capturing, stream_handle(None), Stream, _learn_array, _learn_stream)
    except ValueError:
        return None


def find_functions(*names: str) -> list[int]:
    """Return the addresses of functions of the driver; 0 of one that it lacks."""
    found = (driver.cuGetProcAddress(name.encode(), _CUDA, 0)[:2] for name in names)
    return [0 if status else int(address) for status, address in found]


def _describe(core: ModuleType, parameter: Parameter, converter: Converter) -> tuple[Any, ...]:
    """Return the row of the core's table for a parameter: the fields of ``Parameter`` in ``_launch.c``."""
    target = pointed_type(parameter)
    if target is not None:
        known = find_scalar(target)
        if known is None:
            return (core.POINTER, 8, 8, False, 0, 0, None, None, converter)
        dtype = NotImplemented if known.typestr == "bfloat16" else np.dtype(known.typestr)  # no dtype stands for it
        code = _CODES.get(known.typestr) or _CODES[known.typestr[0]]
        return (core.POINTER, 8, 8, False, code, 8 * known.size, dtype, None, converter)
    known = find_scalar(parameter.type.strip())
    kind, size, scalar = core.CONVERTED, parameter.size, None
    if known is not None and known.typestr != "bfloat16":
        size = known.size
        if known.typestr == "b1":
            kind = core.BOOLEAN
        elif known.typestr[0] in "iu":
            kind = core.INTEGER
        elif known.typestr in ("f4", "f8"):
            kind = core.FLOAT if known.typestr == "f4" else core.DOUBLE
            scalar = np.dtype(known.typestr).type
    signed = known is not None and known.typestr[0] == "i"
    return (kind, size, parameter.alignment, signed, 0, 0, None, scalar, converter)


def _learn_array(array: Any) -> object:
    """Return how the core reads the addresses of arrays of a type.

    Returns:
        True as CuPy's, a capsule by DLPack's functions in it (PyTorch's since 2.10), None by the converter, False
        if this array does not tell.
    """
    kind = type(array)
    if is_cupy(kind):
        shown = array.__cuda_array_interface__
        if shown.get("strides") is not None or not shown["data"][0]:
            return False
        return True if array._c_contiguous is True and array.data.ptr == shown["data"][0] else None
    if kind.__module__.partition(".")[0] == "torch" and kind.__name__ in ("Tensor", "Parameter"):
        return getattr(kind, "__dlpack_c_exchange_api__", None)
    return None


def _learn_stream(stream: Any) -> str | bool | None:
    """Return how the core reads the handles of streams of a type.

    Returns:
        The attribute that holds it, of streams that keep it for life; None: by ``__cuda_stream__``; False: not at all.
    """
    if is_own(stream):
        return False  # such as a graph builder
    library = type(stream).__module__.partition(".")[0]
    name = {"cupy": "ptr", "torch": "cuda_stream"}.get(library, "")
    return name if type(getattr(stream, name, None)) is int else None
