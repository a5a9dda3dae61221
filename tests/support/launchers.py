"""Launchers without a GPU: the driver's part is played by objects that note what they are given."""

import contextlib
import ctypes
import itertools
from collections.abc import Sequence
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from jitlto.base.layouts import INTEGERS_128, find_vector
from jitlto.base.types import Parameter, find_scalar
from jitlto.cuda import device, libraries
from jitlto.launch import launcher as launcher_module
from jitlto.launch import signature as signature_module
from jitlto.launch import step as step_module
from jitlto.launch.launcher import Launcher
from jitlto.link.kernel_cache import LinkedKernel
from jitlto.plan.cache_entry import Chosen
from tests.support.launch_core import plain_class

_HANDLE = 1  # of the stream
OK, INVALID = driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_INVALID_VALUE


class Stream:
    """A stream of ``cuda.core``."""

    handle = _HANDLE

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, _HANDLE)


Stream.__module__ = "cuda.core"


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
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_void_p),
)

#: ``cuStreamIsCapturing``.
NativeCapture = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int))


def plain_config(*shape: int) -> SimpleNamespace:
    """The configuration that ``cuLaunchKernel`` is given as numbers: grid, block, shared memory and stream."""
    names = ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ", "sharedMemBytes", "hStream")
    return SimpleNamespace(**dict(zip(names, shape, strict=True)), attrs=())


class FakeDriver:
    """Stands for the driver below launchers; types and enumerations are the real ones.

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
        #: What reached the driver: stream, configuration and values.
        self.launches: list[tuple[Any, ...]] = []
        #: By handle.
        self.streams: dict[int, Any] = {_HANDLE: self.stream}
        #: What the next launches return.
        self.status = OK
        self.signatures: dict[int, Sequence[Parameter]] = {}  # by handle of the kernel
        #: Dynamic shared memory that was requested: handle of the kernel, bytes.
        self.granted: list[tuple[int, int]] = []
        self.contexts = [1]
        #: Kernels that no launch may have, as their blocks are too large.
        self.too_large: set[int] = set()
        #: The kernel of each launch.
        self.launched: list[int] = []
        self.is_capturing = False
        numbers = itertools.count(1)

        def make_kernel(_: str) -> Any:
            attributes = {0: SimpleNamespace(shared_size_bytes=0)}
            return SimpleNamespace(attributes=attributes, handle=driver.CUkernel(next(numbers)))

        from_code = staticmethod(lambda _, name: SimpleNamespace(get_kernel=make_kernel))
        current = SimpleNamespace(device_id=0, default_stream=self.stream, compute_capability=(9, 0))
        monkeypatch.setattr(device, "current", lambda: current)
        monkeypatch.setattr(device, "place", lambda: 0)
        monkeypatch.setattr(device, "load_function", lambda kernel: (int(kernel), ""))
        monkeypatch.setattr(libraries, "driver", self, raising=False)
        monkeypatch.setattr(launcher_module, "Device", SimpleNamespace(get_all_devices=lambda: [current]))
        monkeypatch.setattr(device, "ensure_context", lambda: None)
        monkeypatch.setattr(device, "allowed_in_captures", contextlib.nullcontext)
        monkeypatch.setattr(launcher_module, "ObjectCode", SimpleNamespace(from_cubin=from_code, from_ptx=from_code))
        # That of a device asks the driver how many fit.
        monkeypatch.setattr(plain_class(Launcher), "max_blocks", lambda *_: 100)
        monkeypatch.setattr(signature_module, "Stream", Stream)
        monkeypatch.setattr(signature_module, "extension", lambda: core)
        signature_module.make_signature.cache_clear()
        self._native, self._native_capture = NativeLaunch(self._launch_from_core), NativeCapture(self._tell_capture)
        for module in (launcher_module, step_module, signature_module):
            monkeypatch.setattr(module, "driver", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(driver, name)

    def cuGetProcAddress(self, name: bytes, version: int, flags: int) -> tuple[Any, ...]:  # noqa: N802
        """Give the address of the function that launches, or of the one that tells of captures."""
        function = {b"cuLaunchKernelEx": self._native, b"cuStreamIsCapturing": self._native_capture}[name]
        return OK, ctypes.cast(function, ctypes.c_void_p).value, None

    def cuKernelGetFunction(self, kernel: int) -> tuple[Any, ...]:  # noqa: N802
        """Give a handle for one context."""
        return OK, kernel

    def cuStreamIsCapturing(self, _: int) -> tuple[Any, ...]:  # noqa: N802
        """Tell of captures."""
        return OK, driver.CUstreamCaptureStatus(int(self.is_capturing))

    def cuCtxGetCurrent(self) -> tuple[Any, ...]:  # noqa: N802
        """Give the context, which is the same in all threads."""
        return OK, self.contexts[-1]

    def cuCtxPushCurrent(self, context: int) -> None:  # noqa: N802
        """Make another one current."""
        self.contexts.append(context)

    def cuCtxPopCurrent(self) -> None:  # noqa: N802
        """Make the former one current again."""
        self.contexts.pop()

    def cuKernelSetAttribute(self, _: Any, size: int, kernel: int, device_id: int) -> tuple[Any, ...]:  # noqa: N802
        """Grant dynamic shared memory."""
        self.granted.append((kernel, size))
        return (OK,)

    def cuLaunchKernel(self, kernel: Any, *shape: int) -> tuple[Any, ...]:  # noqa: N802
        """Launch the plain way, without attributes."""
        return self.cuLaunchKernelEx(plain_config(*shape[:8]), kernel, *shape[8:])

    def cuLaunchKernelEx(self, config: Any, kernel: Any, address: int, extra: int) -> tuple[Any, ...]:  # noqa: N802
        """Launch the plain way."""
        assert extra == 0
        shape = SimpleNamespace(
            grid=(config.gridDimX, config.gridDimY, config.gridDimZ),
            block=(config.blockDimX, config.blockDimY, config.blockDimZ),
            shared_memory=config.sharedMemBytes,
            attributes={attribute.id.name for attribute in config.attrs},
            by_core=False,
        )
        count = len(self.signatures[int(kernel)])
        addresses = (ctypes.c_void_p * count).from_address(address)
        return (self._launch(int(config.hStream), shape, int(kernel), addresses),)

    def _tell_capture(self, stream: int, found: Any) -> int:
        found[0] = self.is_capturing
        return 0

    def _launch_from_core(self, config: Any, kernel: int, values: Any, extra: Any) -> int:
        native = config[0]
        assert (native.attributes, native.attribute_count) == (None, 0)
        shape = SimpleNamespace(
            grid=tuple(native.grid),
            block=tuple(native.block),
            shared_memory=native.shared_memory,
            attributes=set(),
            by_core=True,
        )
        signature = self.signatures[kernel]
        addresses = _addresses(extra, signature) if extra else values[: len(signature)] if signature else []
        return int(self._launch(native.stream, shape, kernel, addresses))

    def _launch(self, handle: int, shape: Any, kernel: int, addresses: Any) -> Any:
        self.launched.append(kernel)
        if kernel in self.too_large:
            return INVALID
        if self.status == OK:
            parts = zip(addresses, self.signatures[kernel], strict=True)
            values = [_read(address, parameter) for address, parameter in parts]
            stream = self.streams.get(handle) or SimpleNamespace(handle=handle)
            self.launches.append((stream, shape, *values))
        return self.status

    def launcher(self, *types: str) -> Launcher:
        """A launcher of a kernel with parameters of some types, called ``a0``, ``a1`` and so on."""
        return self.make([parameter(type_, f"a{number}") for number, type_ in enumerate(types)])

    def make(self, signature: Sequence[Parameter]) -> Launcher:
        """A launcher of a kernel ``test/kern`` with a signature."""
        linked = LinkedKernel(b"\x7fELF", "kern", "sm_90", "", 0.0)
        chosen = Chosen("test/kern", "0" * 64, tuple(signature))
        made = launcher_class(self.core)(chosen, linked, lambda: pytest.fail("no plan needed"))
        self.signatures[int(made.kernel.handle)] = signature
        return made


@cache
def launcher_class(core: ModuleType | None) -> type[Launcher]:
    """The class of launchers that a core calls, or of those that Python calls."""
    plain = plain_class(Launcher)
    return plain if core is None else core.make_called_class(plain)  # type: ignore[no-any-return, return-value]


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
    """The value that the kernel reads: a number, or the bytes of anything else."""
    known = find_scalar(parameter.type)
    if known is None:
        data = ctypes.string_at(address, parameter.size)
        return int.from_bytes(data, "little") if parameter.type.endswith("*") else data
    typestr = "u2" if known.typestr == "bfloat16" else known.typestr
    return np.frombuffer(ctypes.string_at(address, known.size), typestr)[0]


def parameter(type_: str, name: str = "x") -> Parameter:
    """A parameter of a type; one that is not known has 8 bytes."""
    scalar, vector = find_scalar(type_), find_vector(type_)
    size = vector[0].size * vector[1] if vector else scalar.size if scalar else 16 if type_ in INTEGERS_128 else 8
    return Parameter(name, type_, size, vector[0].size if vector and vector[1] == 3 else min(size, 16))
