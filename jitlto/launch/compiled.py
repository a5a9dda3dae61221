"""The compiled core of launches: its tables, what it learns of types, and when launches go the Python way instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType, NoneType
from typing import Any

import numpy as np

from jitlto.base.types import Parameter, find_scalar
from jitlto.cuda import device
from jitlto.cuda.libraries import driver
from jitlto.launch.arguments import ArgumentConverter, pointed_type
from jitlto.launch.array_types import CUPY, TORCH, find_array_type
from jitlto.launch.core import extension
from jitlto.launch.fast_path import FastPath
from jitlto.launch.packed import to_bytes
from jitlto.launch.streams import default_stream

_CUDA = 12000  # the version of cuLaunchKernelEx that is asked for: that of the oldest CUDA that jitlto supports
# DLDataTypeCode (dlpack.h) by NumPy's letter.
_DLPACK_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT16 = 4
_EXCHANGE = "__dlpack_c_exchange_api__"


def install_call(
    signature: Sequence[Parameter],
    convert: ArgumentConverter,
    namespace: dict[str, Any],
    launcher_class: Any,
    stream: Any,
    args: Sequence[Any],
) -> None:
    """Install what launchers of a signature's class call in place of their method ``__call__``.

    Args:
        signature, convert, namespace: As of :class:`~jitlto.launch.fast_path.FastPath`.
        launcher_class: The class.
        stream, args: Those of a launch, to learn their types from.
    """
    core: ModuleType | None = launcher_class._core
    install = partial(_install, launcher_class)
    address = 0 if core is None else launch_function()
    if core is None or not address:
        FastPath(signature, convert, namespace, install).learn(stream, args)
        return

    def set_fallback(function: Callable[..., None]) -> None:
        call.fallback = function

    def fall_back(launcher: Any, stream: Any, grid: Any, block: Any, *args: Any, **how: Any) -> None:
        # Generated when it is needed first: many programs only pass what the core knows.
        FastPath(signature, convert, namespace, set_fallback).learn(stream, args)
        call.fallback(launcher, stream, grid, block, *args, **how)

    rows = tuple(
        _describe(core, parameter, converter)
        for parameter, converter in zip(signature, convert.converters, strict=True)
    )
    default = default_stream().__cuda_stream__()[1]
    prepare = partial(_make_state, core)
    call = core.make_call(rows, address, default, namespace["Stream"], prepare, _learn_array, _learn_stream, fall_back)
    install(call)


def bind_compiled(
    launcher: Any, bound: Callable[[], None], values: Sequence[Any], config: Any, stream: Any, *, may_close: bool
) -> Callable[[], None]:
    """Return a launch of the core that takes no arguments, or ``bound`` if the driver has no function for it.

    Args:
        launcher: A launcher that the core launches.
        bound: The same launch, the Python way.
        values: What the converters returned for the arguments.
        config: The launch configuration, without attributes.
        stream: The stream of ``cuda.core``.
        may_close: Whether its owner may close it.
    """
    core, address = launcher._core, launch_function()
    if not address:
        return bound
    state = getattr(launcher, "_compiled_state", None) or _make_state(core, launcher)
    parts = zip(launcher.signature, values, strict=True)
    arguments = tuple((parameter.alignment, to_bytes(value, parameter.size)) for parameter, value in parts)
    extents, handle = (*config.grid, *config.block, config.shmem_size), int(stream.__cuda_stream__()[1])
    own_stream = stream if may_close else None
    made: Callable[[], None] = core.make_bound(address, state, extents, handle, own_stream, arguments, bound)
    return made


def _make_state(core: ModuleType, launcher: Any) -> object:
    kernel = int(launcher.kernel.handle)
    launcher._compiled_state = state = core.make_state(kernel, loaded_function(kernel))
    return state


def _install(launcher_class: Any, call: Callable[..., None]) -> None:
    launcher_class._fast_call = call
    if launcher_class._core is None:
        launcher_class.__call__ = call
    else:
        launcher_class._core.set_called_method(launcher_class, call)


def address_reader(parameter: Parameter, convert: Callable[[Any], int]) -> Callable[[Any], int | None] | None:
    """Return the core's way to read the address of an argument for a pointer; None without a core.

    The function that is returned returns None for what it leaves to the converter.
    """
    core = extension()
    if core is None:
        return None
    rows = (_describe(core, parameter, convert),)
    call = core.make_call(rows, 0, 0, NoneType, _no_launch, _learn_array, _no_launch, _no_launch)
    read: Callable[[Any], int | None] = call.read_address
    return read


def launch_function() -> int:
    """Return the address of ``cuLaunchKernelEx``; 0 if the driver has none."""
    status, address, _ = driver.cuGetProcAddress(b"cuLaunchKernelEx", _CUDA, 0)
    return int(address) if status == driver.CUresult.CUDA_SUCCESS else 0


def loaded_function(kernel: int) -> int:
    """Return the handle of a kernel in the current context, a ``CUfunction``; 0 if it cannot be loaded there."""
    with device.allowed_in_captures():
        status, function = driver.cuKernelGetFunction(kernel)
    return int(function) if status == driver.CUresult.CUDA_SUCCESS else 0


def _no_launch(*_: Any) -> None:
    raise TypeError("made to read addresses, not to launch")


def _describe(core: ModuleType, parameter: Parameter, converter: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return the row of the core's table for a parameter: the fields of ``Parameter`` in ``_launch.c``."""
    target = pointed_type(parameter)
    if target is not None:
        known = find_scalar(target)
        code, bits, dtype = 0, 0, None  # type: int, int, object
        if known is not None and known.typestr == "bfloat16":
            code, bits, dtype = _BFLOAT16, 16, NotImplemented  # no NumPy dtype stands for it
        elif known is not None:
            code, bits = _DLPACK_CODES[known.typestr[0]], 8 * known.size
            dtype = np.dtype(known.typestr)
        return (core.POINTER, 8, 8, False, "const" in target.split(), code, bits, dtype, None, converter)
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
    return (kind, size, parameter.alignment, signed, False, 0, 0, None, scalar, converter)


def _learn_array(array: Any) -> object:
    """Return how the core reads the addresses of arrays of a type.

    Returns:
        True as CuPy's, bytes by PyTorch's own functions, a capsule by DLPack's, None not at all, False if this array
        does not tell.
    """
    kind = type(array)
    known = find_array_type(kind)
    if known is CUPY:
        agrees = known.agrees(array, array.__cuda_array_interface__["data"][0])
        return False if agrees is None else agrees or None
    if known is TORCH:
        from jitlto.launch import torch_interface  # imported lazily: needed for PyTorch only

        return torch_interface.describe(array) or getattr(kind, _EXCHANGE, None)
    return vars(kind).get(_EXCHANGE)  # of the type itself: a subclass may be anything, such as a tensor without memory


def _learn_stream(stream: Any) -> str | None:
    """Return the attribute with the handle of streams of a type; None if the core does not know the type."""
    library = type(stream).__module__.partition(".")[0]
    name = {"cupy": "ptr", "torch": "cuda_stream"}.get(library, "")
    return name if type(getattr(stream, name, None)) is int else None
