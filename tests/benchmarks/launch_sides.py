"""The launches that ``tests.benchmarks.launch`` compares: jitlto's with the arrays of each library, and its peers'.

Every side launches a kernel that writes ``x + 3``, or the sum of seven arrays, to an output of its own. What is not
installed, or does not work on the machine, is named in ``Sides.missing`` with the reason.
"""

import ctypes
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
import pytest
from cuda.core import Device, LaunchConfig, launch

from jitlto.base.errors import JitltoError
from jitlto.cuda import device
from jitlto.launch import core, signature
from jitlto.launch.launcher import Launcher
from tests.benchmarks.launch_peers import build_launches
from tests.support.launch_core import use
from tests.support.launchers import launcher_class

BURST = 200
N = 1024
GRID, BLOCK = 4, 256
BASE = "cuda.core.launch, ready pointers"
BASE_OF_EIGHT = "cuda.core.launch, 8 ready pointers"

EIGHT = {
    "family.toml": """
[family]
name = "eight"

[entrypoint.eight]
matrix = "eight.json"
template = "eight.cu.jinja"
params = ["const float* a", "const float* b", "const float* c", "const float* d", "const float* e", "const float* f",
          "const float* g", "float* y", "unsigned n"]
""",
    "eight.json": "{}",
    "eight.cu.jinja": """
__global__ void eight(const float* a, const float* b, const float* c, const float* d, const float* e, const float* f,
                      const float* g, float* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i];
}
""",
}
_RAW = """extern "C" __global__ void peer(const float* x, float* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 3.0f;
}"""
_TRITON = """
import triton
import triton.language as tl

@triton.jit
def add_three(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 3.0, mask=i < n)
"""

Side = Callable[[], object]
Read = Callable[[], Any]


class Sides:
    """What is compared.

    Parameters
    ----------
    axpy, eight : Launcher
        The kernels with two arrays and with eight; launched in Python here, and by the compiled core if there is one.
    place : Path
        A directory for what is compiled.
    """

    def __init__(self, axpy: Launcher, eight: Launcher, place: Path) -> None:
        self._axpy, self._eight, self._place = axpy, eight, place
        self._compiled = find_extension()
        self._x = np.random.default_rng(7).random(N, dtype=np.float32)
        #: Name → one launch.
        self.sides: dict[str, Side] = {}
        #: Name → a burst of launches.
        self.whole: dict[str, Side] = {}
        #: Name of a library or tool → why there is nothing of it.
        self.missing = {} if self._compiled else {"compiled core": "not built"}
        self._outputs: dict[str, tuple[Read, float]] = {}
        self._with_cupy()
        for library, add in (
            ("torch", self._with_torch),
            ("numba-cuda", self._with_numba),
            ("jax", self._with_jax),
            ("triton", self._with_triton),
            ("C++ compiler", self._with_cpp),
        ):
            try:
                add()
            except Exception as error:  # noqa: BLE001 - what does not work is missing, and must not end the rest
                lines = str(error).strip().splitlines() or [""]
                self.missing[library] = f"{type(error).__name__}: {lines[0][:200]}"

    def check(self) -> None:
        """Launch every side once, and exit unless all of them computed what they should."""
        for side in (*self.sides.values(), *self.whole.values()):
            side()
        Device(0).sync()
        for name, (read, times) in self._outputs.items():
            expected = self._x.astype(np.float64) * times + (3 if times == 1 else 0)
            if not np.allclose(np.asarray(read()), expected):
                raise SystemExit(f"{name} computed something else")

    def _launch(self, name: str, eight: bool, stream: Any, x: Any, y: Any, read: Read) -> None:
        """Add jitlto's launches of a kernel with some arrays."""
        kernel = self._eight if eight else self._axpy
        for way, extension in (("", None), (", compiled", self._compiled)):
            if way and extension is None:
                continue
            launcher = launcher_class(extension)(kernel.chosen, kernel.linked, lambda: kernel.plan)
            with use_extension(extension):
                signature.make_signature.cache_clear()  # it learns the types of arguments: here one side's alone
                for _ in range(3):  # the way is chosen at the second launch
                    launcher(stream, GRID, BLOCK, *[x] * (7 if eight else 1), y, N)
            self._add("jitlto, " + name + way, _bind(launcher, eight, stream, x, y), read, 7 if eight else 1)

    def _add(self, name: str, side: Side, read: Read, times: float = 1) -> None:
        side()
        Device(0).sync()
        self.sides[name], self._outputs[name] = side, (read, times)

    def _with_cupy(self) -> None:
        x = cp.asarray(self._x)
        y = [cp.zeros(N, np.float32) for _ in range(9)]
        core, own = Device(0).create_stream(), cp.cuda.Stream(non_blocking=True)
        config, kernel, count = LaunchConfig(grid=GRID, block=BLOCK), self._axpy.kernel, np.uint32(N)
        source, target = x.data.ptr, y[0].data.ptr
        self._add(BASE, lambda: launch(core, config, kernel, source, target, count), lambda: y[0].get())
        many, all_of_them, last = self._eight.kernel, [x.data.ptr] * 7, y[1].data.ptr
        a, b, c, d, e, f, g = all_of_them
        self._add(
            BASE_OF_EIGHT, lambda: launch(core, config, many, a, b, c, d, e, f, g, last, count), lambda: y[1].get(), 7
        )
        name = "CuPy arrays, stream of "
        self._launch(name + "cuda.core", False, core, x, y[2], lambda: y[2].get())
        self._launch(name + "CuPy", False, own, x, y[3], lambda: y[3].get())
        self._launch("8 CuPy arrays, stream of CuPy", True, own, x, y[6], lambda: y[6].get())
        raw = cp.RawKernel(_RAW, "peer")
        self._add("cupy.RawKernel", lambda: raw((GRID,), (BLOCK,), (x, y[7], count)), lambda: y[7].get())

    def _with_torch(self) -> None:
        import torch

        x = torch.from_numpy(self._x).cuda()
        y = [torch.zeros(N, device="cuda") for _ in range(4)]
        own = torch.cuda.Stream()
        torch.cuda.synchronize()
        name = "PyTorch tensors, stream of PyTorch"
        self._launch(name, False, own, x, y[0], lambda: y[0].cpu())
        self._launch("8 " + name, True, own, x, y[2], lambda: y[2].cpu())

    def _with_numba(self) -> None:
        from numba import cuda

        x = cuda.to_device(self._x)
        y = cuda.to_device(np.zeros(N, np.float32))
        own = cuda.stream()
        self._launch("Numba arrays, stream of Numba", False, own, x, y, lambda: y.copy_to_host())

    def _with_jax(self) -> None:
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        import jax

        x = jax.block_until_ready(jax.device_put(self._x, jax.devices("gpu")[0]))
        # JAX's arrays are immutable, and it shows no streams.
        y, own = cp.zeros(N, np.float32), Device(0).create_stream()
        self._launch("a JAX and a CuPy array, stream of cuda.core", False, own, x, y, lambda: y.get())

    def _with_triton(self) -> None:
        import torch

        path = self._place / "peer_of_triton.py"
        path.write_text(_TRITON)  # Triton reads a kernel's source from its file
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        x, y = torch.from_numpy(self._x).cuda(), torch.zeros(N, device="cuda")
        kernel = module.add_three
        self._add("Triton", lambda: kernel[(GRID,)](x, y, N, BLOCK=BLOCK), lambda: y.cpu())

    def _with_cpp(self) -> None:
        function = ctypes.CDLL(str(build_launches(self._place))).launches
        function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_uint, ctypes.c_int, ctypes.c_bool]
        stream, kernel, x = Device(0).create_stream(), int(self._axpy.kernel.handle), cp.asarray(self._x)
        self._add_burst("C++, cuLaunchKernelEx", function, kernel, stream, x, False)
        loaded, _ = device.load_function(kernel)
        self._add_burst("C++, cuLaunchKernelEx, a CUfunction, one buffer", function, loaded, stream, x, True)

    def _add_burst(self, name: str, function: Any, handle: int, stream: Any, x: Any, is_buffer: bool) -> None:
        y = cp.zeros(N, np.float32)

        def burst() -> None:
            status = function(handle, int(stream.handle), x.data.ptr, y.data.ptr, N, BURST, is_buffer)
            if status:
                raise RuntimeError(f"{name}: {status}")

        burst()
        Device(0).sync()
        self.whole[name], self._outputs[name] = burst, (lambda: y.get(), 1)


def find_extension() -> Any:
    """Return the compiled core; None if there is none."""
    try:
        return core.extension()
    except JitltoError:
        return None


@contextmanager
def use_extension(module: Any) -> Iterator[None]:
    """Have launches and look-ups that choose their way find an extension module, or none."""
    with pytest.MonkeyPatch.context() as patch:
        use(patch, module)
        patch.setattr(signature, "extension", lambda: module)
        yield


def _bind(launcher: Launcher, eight: bool, stream: Any, x: Any, y: Any) -> Side:
    if eight:
        return lambda: launcher(stream, GRID, BLOCK, x, x, x, x, x, x, x, y, N)
    return lambda: launcher(stream, GRID, BLOCK, x, y, N)
