"""Host time of a launch without a GPU: jitlto's own part, around a stand-in for the driver.

python -m tests.benchmarks.launch_overhead

Minima over many bursts, for comparing two versions of the code on one machine, in turn. What a launch costs beside
``cuda.core.launch`` is measured on a GPU by ``tests.benchmarks.launch``.

Where CuPy, PyTorch and Numba are installed, their own arrays are launched too, with addresses of no memory. Tensors in
host memory stand for those on a GPU: the core's constant for CUDA is exchanged for the host's.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jitlto.launch import arguments, signature, torch_interface
from jitlto.launch.launcher import Launcher
from jitlto.packaging.hooks.extension import SOURCE, compile_extension
from tests.support import exercise_core
from tests.support.arrays import (
    STREAMS,
    TORCH,
    CupyArray,
    CupyStream,
    JaxArray,
    NumbaArray,
    NumbaStream,
    TorchStream,
    TorchTensor,
)  # fmt: skip
from tests.support.launchers import OK, FakeDriver
from tests.support.process import ROOT

BURST, ROUNDS = 2000, 60
ADDRESS = 1 << 20
TYPES = ("float const*", "float*", "unsigned int")
_DRIVER = "int launch(void *config, void *kernel, void **arguments, void **extra) { return 0; }\n"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory:
        for core, driver in ((None, 0), _build(Path(directory))):
            way = "in Python" if core is None else "compiled"
            for measure in (_measure, _measure_libraries):
                with pytest.MonkeyPatch.context() as patch:
                    fake = FakeDriver(patch, core)
                    patch.setattr(FakeDriver, "cuGetProcAddress", lambda *_, driver=driver: (OK, driver, None))
                    patch.setattr(FakeDriver, "cuLaunchKernelEx", lambda *_: (OK,))
                    for name, seconds in measure(fake, patch, rounds):
                        print(f"{way}, {name:50} {1e9 * seconds:9.1f} ns", flush=True)


def _build(directory: Path) -> tuple[ModuleType, int]:
    """Compile the core for tensors in host memory, and a stand-in for the driver; return it and the address."""
    for source in (ROOT / SOURCE).parent.glob("*.c"):
        (directory / source.name).write_text(source.read_text().replace("DL_CUDA = 2", "DL_CUDA = 1"))
    core = exercise_core.load(compile_extension(directory / SOURCE.name, directory), "jitlto.launch._launch")
    (directory / "driver.c").write_text(_DRIVER)
    library = ctypes.CDLL(str(compile_extension(directory / "driver.c", directory)))
    return core, ctypes.cast(library.launch, ctypes.c_void_p).value or 0


def _timed(work: Callable[[], object], rounds: int) -> float:
    for _ in range(4):  # the core launches after the second
        work()
    return min(timeit.repeat(work, number=BURST, repeat=rounds)) / BURST


def _measure(fake: FakeDriver, patch: pytest.MonkeyPatch, rounds: int) -> Iterator[tuple[str, float]]:
    """Launches with objects that look like the libraries' own."""
    patch.setitem(sys.modules, "torch", TORCH)
    begin = time.perf_counter()
    launcher = fake.launcher(*TYPES)
    stream, cheap = fake.stream, CupyArray()
    times = [time.perf_counter() - begin]
    for _ in range(2):
        begin = time.perf_counter()
        launcher(stream, 4, 256, cheap, cheap, 77)
        times.append(time.perf_counter() - begin)
    yield from zip(("making a launcher", "its first launch", "its second launch"), times, strict=True)
    arrays = [kind() for kind in (CupyArray, NumbaArray, TorchTensor, JaxArray)]
    for name, work in {
        **{
            f"like {type(array).__module__} {type(array).__name__}": _launched(launcher, stream, array)
            for array in arrays
        },
        **{f"{type(other).__module__} stream": _launched(launcher, other, cheap) for other in [k(0) for k in STREAMS]},
        "no stream": _launched(launcher, None, cheap),
        "with shared memory": lambda: launcher(stream, 4, 256, cheap, cheap, 77, shared_memory=4096),
    }.items():
        yield name, _timed(work, rounds)


def _launched(launcher: Launcher, stream: object, array: object) -> Callable[[], None]:
    if isinstance(array, JaxArray):  # read-only
        return lambda: launcher(stream, 4, 256, array, None, 77)
    return lambda: launcher(stream, 4, 256, array, array, 77)


def _measure_libraries(fake: FakeDriver, patch: pytest.MonkeyPatch, rounds: int) -> Iterator[tuple[str, float]]:
    """Launches with the libraries' own arrays, two and eight of them."""
    for library, make in (("CuPy", _with_cupy), ("PyTorch", _with_torch), ("Numba", _with_numba)):
        try:
            array, stream = make(patch)
        except ImportError as error:
            print(f"{library}: {error}")
            continue
        for count in (2, 8):
            launcher = fake.launcher(*[TYPES[0]] * (count - 2), *TYPES)
            work = partial(launcher, stream, 4, 256, *[array] * count, 77)
            yield f"{count} arrays and a stream of {library}", _timed(work, rounds)


def _with_cupy(patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    import cupy

    # Its array interface asks the driver for the current stream, which there is not.
    learn_array = signature._learn_array
    patch.setattr(signature, "_learn_array", lambda a: True if type(a) is cupy.ndarray else learn_array(a))
    patch.setattr(arguments, "_address", lambda _, array, *__: array.data.ptr)
    memory = cupy.cuda.UnownedMemory(ADDRESS, 4096, None, 0)
    array = cupy.ndarray((16,), cupy.float32, cupy.cuda.MemoryPointer(memory, 0))
    return array, CupyStream(77)


def _with_torch(patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    import torch

    def interface(tensor: Any) -> dict[str, Any]:
        return {"shape": tensor.shape, "typestr": "<f4", "data": (tensor.data_ptr(), False), "version": 2}

    def describe(tensor: Any) -> bytes | None:
        described = original(tensor)
        return None if described is None else bytes(replace_device(described))

    def replace_device(described: bytes) -> torch_interface.TorchInterface:
        found = torch_interface.TorchInterface.from_buffer_copy(described)
        found.cuda = torch_interface.library().aoti_torch_device_type_cpu()
        return found

    original = torch_interface.describe
    patch.setattr(torch_interface, "describe", describe)
    patch.setattr(torch.Tensor, "__cuda_array_interface__", property(interface))
    return torch.ones(16), TorchStream(77)


def _with_numba(patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    from numba.cuda.cudadrv.devicearray import DeviceNDArray

    memory = SimpleNamespace(size=64, device_ctypes_pointer=ctypes.c_size_t(ADDRESS))
    return DeviceNDArray((16,), (4,), np.dtype(np.float32), gpu_data=memory), NumbaStream(77)


if __name__ == "__main__":
    main()
