"""What XLA needs for a launch: the handler that is registered with it, and the words that describe a call.

The words are those that ``jitlto/launch/_xla.c`` reads.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

from jitlto.base.errors import OperatorError
from jitlto.cuda.libraries import driver
from jitlto.frameworks.parts import Call, Launch
from jitlto.launch.core import extension
from jitlto.launch.signature import loaded_function
from jitlto.launch.step import Step, make_packing

#: The name under which XLA knows the handler.
TARGET = "jitlto_launch"
_VALUE, INPUT, OUTPUT = range(3)  # as in _xla.c
_FUNCTIONS = (b"cuLaunchKernelEx", b"cuStreamGetCtx", b"cuCtxPushCurrent", b"cuCtxPopCurrent")
_CUDA = 12000  # the version of these functions
_MAJOR = 0  # the version of XLA's interface for which the handler is written
_lock = threading.Lock()
_registered: dict[str, ModuleType] = {}  # by platform: the module whose handler it is
_kept: dict[bytes, Any] = {}  # by digest: the launchers of all calls, which compiled programs may make at any time


class Cuda:
    """CUDA devices: the kind of device that calls are compiled for, as JAX names it for lowering and for handlers."""

    platform, handler_platform = "cuda", "CUDA"

    def functions(self) -> tuple[int, int, int, int]:
        """Return the addresses of the driver's functions for ``make_xla_handler``.

        All are 0 if the driver lacks one, which makes every launch an error.
        """
        found = [driver.cuGetProcAddress(name, _CUDA, 0)[:2] for name in _FUNCTIONS]
        launch, context, push, pop = (0 if status else int(address) for status, address in found)
        return (launch, context, push, pop) if launch and context and push and pop else (0, 0, 0, 0)

    def prepare(self, launcher: Any, launch: Launch) -> tuple[int, Sequence[int]]:
        """Check a launch configuration, and load the kernel: a capture may not be the first to use it.

        Returns:
            The kernel's handle, and grid, block, shared memory, cluster and whether it is cooperative.
        """
        step = Step(launcher, launch.grid, launch.block, (), launch.shared_memory, launch.cluster, launch.cooperative)
        grid, block, cluster = step.check()
        handle = int(launcher.kernel.handle)
        loaded_function(handle)
        return handle, (*grid, *block, step.shared_memory, *(cluster or (0, 0, 0)), int(step.cooperative))


def register(target: Cuda) -> None:
    """Register the handler with XLA, once for each platform.

    Raises:
        OperatorError: If the compiled core is missing, or this JAX has another interface.
    """
    with _lock:
        core = extension()
        if core is None:
            what, hint = "calls from JAX need the compiled core of launches", "install jitlto from a wheel"
            raise OperatorError(what, code="operator-framework", hint=hint)
        if _registered.get(target.platform) is core:
            return
        major, minor = _interface_version(Path(jax.ffi.include_dir()))
        if major != _MAJOR:
            what = f"JAX {jax.__version__} has version {major}.{minor} of XLA's foreign function interface, not 0.x"
            raise OperatorError(what, code="operator-framework", hint="install another version of JAX or jitlto")
        handler = core.make_xla_handler(target.functions(), major, minor)
        jax.ffi.register_ffi_target(TARGET, handler, platform=target.handler_platform)
        _registered[target.platform] = core


def _interface_version(include: Path) -> tuple[int, int]:
    """Return the version of XLA's interface that the installed JAX has, from its header."""
    text = (include / "xla/ffi/api/c_api.h").read_text("utf-8")
    found = [re.search(rf"#define XLA_FFI_API_{part} (\d+)", text) for part in ("MAJOR", "MINOR")]
    major, minor = (int(match[1]) if match else -1 for match in found)
    return major, minor


def describe_call(
    target: Cuda,
    launcher: Any,
    call: Call,
    places: Mapping[int, tuple[int, int]],
    scalars: Sequence[Any],
) -> np.ndarray[Any, Any]:
    """Return the words of a call, and let XLA find its kernel.

    Args:
        target: Where it runs.
        launcher: The kernel.
        call: The call; it launches something.
        places: For each array that is given where it is found: among inputs or results, and its place there.
        scalars: The value of each argument that is a number.

    Raises:
        ArgumentError: If an argument does not fit the kernel.
    """
    assert call.launch is not None  # noqa: S101 - the caller checks it
    handle, shape = target.prepare(launcher, call.launch)
    digest = bytes.fromhex(launcher.chosen.digest)
    words: list[int] = [*np.frombuffer(digest, np.int64).tolist(), *shape, len(call.parameters)]
    begin, data = len(words) + 2 * len(call.parameters), b""
    packing = make_packing(tuple(launcher.signature))
    for (kind, value), parameter, convert in zip(call.parameters, packing.signature, packing.converters, strict=True):
        if kind == "output":
            words += [OUTPUT, value]
        elif kind == "input" and value in places:
            words += places[value]
        else:
            words += [_VALUE | parameter.size << 8, begin + len(data) // 8]
            data += convert(scalars[value] if kind == "input" else value)
            data += bytes(-len(data) % 8)
    with _lock:
        if _kept.get(digest) is not launcher:
            _registered[target.platform].add_xla_kernel(digest, handle)
            _kept[digest] = launcher
    return np.concatenate([np.array(words, np.int64), np.frombuffer(data, np.int64)])
