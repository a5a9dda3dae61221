"""Operators for JAX without a GPU: XLA calls the handler on the CPU, and a function in Python stands for the driver."""

import ctypes
import hashlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from jitlto.base.types import Parameter, find_scalar
from jitlto.frameworks.parts import Launch
from tests.support import launch_core
from tests.support.launchers import NativeConfig
from tests.support.lazy import Lazy
from tests.support.operators import KERNELS, Reader

jax_call = Lazy("jitlto.frameworks.jax_call")

_SIGNATURES = {
    "square": "T const* x, T* y, long long n, double factor",
    "square_backward": "T const* grad_y, T const* x, T* grad_x, long long n, double factor",
    "reduce_rows": "T const* x, bool const* bits, T* values, long long* counts, int m, int n",
    "accumulate": "T* total, T const* x, long long n",
}
#: ``cuLaunchKernelEx``, with a kernel's number for its handle.
_NativeLaunch = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(NativeConfig), ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)
_NUMBERS = {"int": ctypes.c_int, "long long": ctypes.c_longlong, "double": ctypes.c_double}


def _signature(entry: str, data_type: str) -> list[Parameter]:
    made = []
    for text in _SIGNATURES[entry].replace("T ", f"{data_type} ").replace("T*", f"{data_type}*").split(", "):
        type_, _, name = text.rpartition(" ")
        known = find_scalar(type_)
        size = known.size if known else 8
        made.append(Parameter(name, type_, size, size))
    return made


def _read(parameter: Parameter, address: int) -> Any:
    """Read an argument as the kernel would: a number, an address or None."""
    kind = _NUMBERS.get(parameter.type)
    return kind.from_address(address).value if kind else ctypes.c_uint64.from_address(address).value or None


class CpuTarget:
    """The CPU as a kind of device.

    Attributes:
        launches: The entrypoint, the values that chose the kernel and the configuration of each launch.
        status: What the driver returns.
    """

    platform = handler_platform = "cpu"

    def __init__(self) -> None:
        self.launches: list[tuple[str, dict[str, object], tuple[int, ...]]] = []
        self.launchers: list[Any] = []  # by handle, from 1
        self.prepared: list[Launch] = []
        self.status = 0
        self._native = _NativeLaunch(self._launch)

    def functions(self) -> tuple[int, int, int, int]:
        return ctypes.cast(self._native, ctypes.c_void_p).value or 0, 0, 0, 0

    def prepare(self, launcher: Any, launch: Launch) -> tuple[int, Sequence[int]]:
        self.prepared.append(launch)
        grid = launch.grid if isinstance(launch.grid, tuple) else (launch.grid, 1, 1)
        block = launch.block if isinstance(launch.block, tuple) else (launch.block, 1, 1)
        cluster = launch.cluster if isinstance(launch.cluster, tuple) else (launch.cluster or 0, 0, 0)
        return launcher.handle, (*grid, *block, launch.shared_memory, *cluster, int(launch.cooperative))

    def _launch(self, config: Any, handle: int, parameters: Any, _: Any) -> int:
        if self.status:
            return self.status
        launcher = self.launchers[handle - 1]
        values = [_read(parameter, parameters[number]) for number, parameter in enumerate(launcher.signature)]
        self.launches.append((launcher.entry, launcher.values, (*config[0].grid, *config[0].block)))
        KERNELS[launcher.entry](Reader(launcher.values), *values)
        return 0


class CpuLaunchers:
    """A family whose launchers are those of a :class:`CpuTarget`."""

    def __init__(self, target: CpuTarget) -> None:
        self._target = target

    def launcher(self, *, entry: str, link_options: None, **configuration: object) -> Any:
        """Take the place of ``KernelFamily.launcher``."""
        chosen = {name: str(value) for name, value in configuration.items()}
        digest = hashlib.sha256(f"{entry} {sorted(chosen.items())}".encode()).hexdigest()
        launchers = self._target.launchers
        found = next((each for each in launchers if each.chosen.digest == digest), None)
        if found is None:
            signature = _signature(entry, chosen["data_type"])
            found = SimpleNamespace(signature=signature, entry=entry, values=chosen, handle=len(launchers) + 1)
            found.chosen = SimpleNamespace(kernel=entry, digest=digest)
            launchers.append(found)
        return found


_target = CpuTarget()


def install(monkeypatch: pytest.MonkeyPatch) -> CpuTarget:
    """Have calls run on the CPU; the target is the same for the whole process, for XLA keeps its first handler."""
    core = launch_core.core()
    monkeypatch.setattr(jax_call, "extension", lambda: core)
    if _target not in jax_call.targets:
        jax_call.targets.append(_target)
        jax_call._primitive.cache_clear()
    _target.launches.clear()
    _target.status = 0
    return _target
