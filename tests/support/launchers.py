"""Launchers without a GPU: the driver's part is played by objects that note what they are given."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.core import LaunchConfig

from jitlto.base.layouts import parse_type
from jitlto.base.types import Parameter, find_scalar
from jitlto.cuda import device
from jitlto.launch import compiled, streams
from jitlto.launch import launcher as launcher_module
from jitlto.launch.launcher import Launcher
from jitlto.link.kernel_cache import LinkedKernel
from jitlto.plan.cache_entry import Chosen

_HANDLE = 1  # of the stream


class Stream:
    """A stream that needs no conversion."""

    handle = _HANDLE

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, _HANDLE)


class NativeConfig(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_memory", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


#: ``cuLaunchKernelEx``.
NativeLaunch = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(NativeConfig),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_void_p),
)


class FakeDriver:
    """Stands for the driver below launchers.

    Parameters
    ----------
    monkeypatch : pytest.MonkeyPatch
        Puts it in place.
    core : module, optional
        The compiled core of launches, which calls the driver itself; without it launches go the Python way.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, core: ModuleType | None = None) -> None:
        self.core = core
        self.stream = Stream()
        #: What reached ``cuda.core.launch``: stream, configuration, kernel and values.
        self.launches: list[tuple[Any, ...]] = []
        #: By handle.
        self.streams: dict[int, Any] = {_HANDLE: self.stream}
        #: Raised by the next launches.
        self.error: Exception | None = None
        self.kernel = SimpleNamespace(attributes={0: SimpleNamespace(shared_size_bytes=0)}, handle=0)
        code = SimpleNamespace(get_kernel=lambda _: self.kernel)
        from_code = staticmethod(lambda _, name: code)
        current = SimpleNamespace(device_id=0, default_stream=self.stream, compute_capability=(9, 0))
        monkeypatch.setattr(device, "current", lambda: current)
        monkeypatch.setattr(launcher_module, "ObjectCode", SimpleNamespace(from_cubin=from_code, from_ptx=from_code))
        monkeypatch.setattr(device, "allowed_in_captures", contextlib.nullcontext)
        monkeypatch.setattr(launcher_module, "Stream", Stream)
        monkeypatch.setattr(launcher_module, "launch", self.launch)
        monkeypatch.setattr(streams, "thread", threading.local())
        self._natives: list[Any] = []  # keeps them alive
        self._install_call, self._bind_compiled = compiled.install_call, compiled.bind_compiled
        if core is not None:
            monkeypatch.setitem(sys.modules, core.__name__, core)
        monkeypatch.setattr(compiled, "install_call", self.install_call)
        monkeypatch.setattr(compiled, "bind_compiled", self.bind_compiled)
        monkeypatch.setattr(compiled, "launch_function", self.launch_function)
        monkeypatch.setattr(compiled, "loaded_function", lambda kernel: kernel)

    def launch(self, stream: Any, config: LaunchConfig, kernel: Any, *values: Any) -> None:
        """Take the place of ``cuda.core.launch``."""
        assert kernel is self.kernel
        if self.error is not None:
            raise self.error
        self.launches.append((stream, config, *values))

    def install_call(self, signature: Sequence[Parameter], *others: Any) -> Any:
        """Take the place of ``compiled.install_call``, which does not tell the driver the signature."""
        self._add_native(signature)
        return self._install_call(signature, *others)

    def bind_compiled(self, launcher: Any, *others: Any, **how: Any) -> Any:
        """Take the place of ``compiled.bind_compiled``, as :meth:`install_call`."""
        self._add_native(launcher.signature)
        return self._bind_compiled(launcher, *others, **how)

    def _add_native(self, signature: Sequence[Parameter]) -> None:
        def launch(config: Any, kernel: int, values: Any, extra: Any) -> int:
            if self.error is not None:
                return 1
            addresses = _addresses(extra, signature) if extra else values[: len(signature)] if signature else []
            read = [_read(address, parameter) for address, parameter in zip(addresses, signature, strict=True)]
            stream = self.streams.get(config[0].stream) or SimpleNamespace(handle=config[0].stream)
            self.launches.append((stream, _Config(config[0]), *read))
            return 0

        self._natives.append(NativeLaunch(launch))

    def launch_function(self) -> int:
        """Take the place of ``compiled.launch_function``."""
        return ctypes.cast(self._natives[-1], ctypes.c_void_p).value or 0

    def launcher(self, *types: str) -> Launcher:
        """The first launcher of a kernel with parameters of some types, called ``a0``, ``a1`` and so on."""
        launcher_module._signature_class.cache_clear()
        return make_launcher([parameter(type_, f"a{number}") for number, type_ in enumerate(types)], self.core)


class _Config:
    """What the tests read of a ``LaunchConfig``."""

    def __init__(self, native: Any) -> None:
        self.grid, self.block = tuple(native.grid), tuple(native.block)
        self.shmem_size = native.shared_memory
        self.native = (native.attributes, native.attribute_count)


def _addresses(extra: Any, signature: Sequence[Parameter]) -> list[int]:
    """Where arguments lie in the buffer of which the driver is told by ``CU_LAUNCH_PARAM_BUFFER_POINTER``."""
    assert (extra[0], extra[2], extra[4]) == (1, 2, None)
    end, addresses = 0, []
    for parameter in signature:
        offset = -(-end // parameter.alignment) * parameter.alignment
        end = offset + parameter.size
        addresses.append(extra[1] + offset)
    assert ctypes.c_size_t.from_address(extra[3]).value == end
    return addresses


def _read(address: int, parameter: Parameter) -> Any:
    """The value that the driver is given, as ``cuda.core.launch`` would be given it."""
    known = find_scalar(parameter.type)
    if known is None:
        return int.from_bytes(ctypes.string_at(address, parameter.size), "little")
    typestr = "u2" if known.typestr == "bfloat16" else known.typestr
    return np.frombuffer(ctypes.string_at(address, known.size), typestr)[0]


def make_launcher(signature: Sequence[Parameter], core: ModuleType | None = None) -> Launcher:
    """A launcher of a kernel ``test/kern`` with a signature."""
    linked = LinkedKernel(b"\x7fELF", "kern", "sm_90", "", 0.0)
    chosen = Chosen("test/kern", "0" * 64, tuple(signature))
    return Launcher(chosen, linked, lambda: pytest.fail("no plan needed"), core=core)


def parameter(type_: str, name: str = "x") -> Parameter:
    """A parameter of a type; one that is not known has 8 bytes."""
    known = parse_type(type_)
    return Parameter(name, type_, known.size if known else 8, known.alignment if known else 8)
