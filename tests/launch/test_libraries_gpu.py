"""Arrays and streams of the real libraries on a GPU: read cheaply, mixed at will, and refused as the converters do."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from jitlto.base.errors import JitltoError
from jitlto.build.pipeline import build
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.launch import core, signature, step
from jitlto.launch.arguments import make_converter
from jitlto.launch.launcher import Launcher
from jitlto.runtime.family import KernelFamily
from tests.support.arrays import torch_tensors
from tests.support.families import write_family
from tests.support.launchers import NativeLaunch, launcher_class

pytestmark = pytest.mark.gpu

N = 1000
_FAMILY = {
    "family.toml": """
[family]
name = "libraries"

[entrypoint.add]
matrix = "one.json"
template = "add.cu.jinja"
params = ["const float* x", "float* y", "unsigned n"]

[entrypoint.any]
matrix = "one.json"
template = "any.cu.jinja"
params = ["const void* x", "const __nv_bfloat16* z"]
""",
    "one.json": "{}",
    "add.cu.jinja": """
__global__ void add(const float* x, float* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 3.0f;
}
""",
    "any.cu.jinja": """
#include <cuda_bf16.h>
__global__ void any(const void* x, const __nv_bfloat16* z) {}
""",
}


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    directory = tmp_path_factory.mktemp("libraries")
    report = build([declaration.load_family(write_family(directory, _FAMILY))], directory / "libraries.fragdb")
    return KernelFamily("libraries", FragmentDatabase(report.path))


@pytest.fixture(params=["python", "compiled"])
def make(family: KernelFamily, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """Makes launchers that have learnt nothing yet, and go one way."""
    extension = core.extension() if request.param == "compiled" else None
    if request.param == "compiled" and extension is None:
        pytest.skip("the compiled core is not built")
    monkeypatch.setattr(signature, "extension", lambda: extension)
    signature.make_signature.cache_clear()

    def made(entry: str) -> Launcher:
        known = family.launcher(entry=entry)
        return launcher_class(extension)(known.chosen, known.linked, lambda: known.plan)

    made.way = request.param  # type: ignore[attr-defined]
    return made


def cupy_array(values: Any) -> Any:
    import cupy

    return cupy.asarray(values)


def torch_tensor(values: Any) -> Any:
    torch = pytest.importorskip("torch")
    return torch.from_numpy(values).cuda()


def numba_array(values: Any) -> Any:
    cuda = pytest.importorskip("numba.cuda")
    try:
        return cuda.to_device(values)
    except Exception as error:  # noqa: BLE001 - whatever keeps it from working
        pytest.skip(f"Numba does not work here: {error}")


def jax_array(values: Any) -> Any:
    jax = pytest.importorskip("jax")
    pytest.MonkeyPatch().setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # for good: JAX starts once a process
    try:
        device = jax.devices("gpu")[0]
    except RuntimeError as error:
        pytest.skip(f"JAX has no GPU: {error}")
    return jax.block_until_ready(jax.device_put(values, device))


ARRAYS: dict[str, Callable[[Any], Any]] = {
    "cupy": cupy_array, "torch": torch_tensor, "numba": numba_array, "jax": jax_array
}  # fmt: skip


def cupy_stream() -> Any:
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


def torch_stream() -> Any:
    return pytest.importorskip("torch").cuda.Stream()


def numba_stream() -> Any:
    return pytest.importorskip("numba.cuda").stream()


STREAMS: dict[str, Callable[[], Any]] = {"cupy": cupy_stream, "torch": torch_stream, "numba": numba_stream}


def synchronize() -> None:
    from cuda.core import Device

    Device(0).sync()


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("source", ARRAYS)
@pytest.mark.parametrize("target", ["cupy", "torch", "numba"])  # JAX's arrays are read-only
def test_any_arrays_go_with_any_stream(make: Any, source: str, target: str, stream: str) -> None:
    import cupy

    launcher = make("add")
    values = np.arange(N, dtype=np.float32)
    x, own = ARRAYS[source](values), STREAMS[stream]()
    for _ in range(5):
        y = ARRAYS[target](np.zeros(N, np.float32))
        synchronize()
        launcher(own, 4, 256, x, y, N)
        synchronize()
        np.testing.assert_array_equal(cupy.asnumpy(cupy.asarray(y)), values + 3)


def outcome(work: Callable[[], Any]) -> Any:
    """A result, or the error."""
    try:
        return work()
    except JitltoError as error:
        return type(error), error.code, str(error)
    except Exception as error:  # noqa: BLE001 - what a library raises
        return type(error), str(error)


class Noting:
    """The driver, whose launches are only noted: their first two arguments, addresses."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self._native = NativeLaunch(self._launch)

    def __getattr__(self, name: str) -> Any:
        return getattr(driver, name)

    def cuGetProcAddress(self, *_: Any) -> tuple[Any, ...]:  # noqa: N802
        return driver.CUresult.CUDA_SUCCESS, ctypes.cast(self._native, ctypes.c_void_p).value, None

    def _launch(self, config: Any, kernel: int, values: Any, extra: Any) -> int:
        self.sent.append(list((ctypes.c_uint64 * 2).from_address(extra[1])))
        return 0

    def cuLaunchKernel(self, kernel: Any, *rest: int) -> tuple[Any, ...]:  # noqa: N802
        return self.cuLaunchKernelEx(None, kernel, *rest[-2:])

    def cuLaunchKernelEx(self, config: Any, kernel: Any, address: int, extra: int) -> tuple[Any, ...]:  # noqa: N802
        places = (ctypes.c_void_p * 2).from_address(address)
        self.sent.append([ctypes.c_uint64.from_address(place or 0).value for place in places])
        return (driver.CUresult.CUDA_SUCCESS,)


def test_every_tensor_is_taken_or_refused_as_by_the_converters(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    plain = torch.arange(24, dtype=torch.float32, device="cuda")
    noting = Noting()
    for module in (signature, step):
        monkeypatch.setattr(module, "driver", noting)
    for entry, types in (("add", ("const float*", "float*")), ("any", ("const void*", "const __nv_bfloat16*"))):
        launcher = make(entry)
        second = plain.bfloat16() if entry == "any" else plain
        rest = () if entry == "any" else (24,)
        for _ in range(3):
            launcher(None, 1, 32, plain, second, *rest)
        for tensor, position in itertools.product(torch_tensors("cuda") * 2, range(2)):
            args: list[Any] = [plain, second]
            args[position] = tensor
            converters = [make_converter(parameter) for parameter in launcher.signature[:2]]

            def expected(c: Any = converters, a: Any = args) -> list[int]:
                return [int.from_bytes(convert(b), "little") for convert, b in zip(c, a, strict=True)]

            def launched(launcher: Any = launcher, args: Any = args, rest: Any = rest) -> list[int]:
                noting.sent.clear()
                launcher(None, 1, 32, *args, *rest)
                [addresses] = noting.sent
                return addresses

            assert outcome(launched) == outcome(expected), (tensor.dtype, tuple(tensor.shape), types[position])
    signature.make_signature.cache_clear()  # of the noted launches


def test_a_thread_without_a_context_launches_in_the_default_stream(make: Any) -> None:
    import cupy

    torch = pytest.importorskip("torch")
    launcher = make("add")
    x, y = cupy.arange(N, dtype=np.float32), cupy.zeros((3, N), np.float32)
    for _ in range(3):
        launcher(None, 4, 256, x, y[0], N)
    y.fill(0)
    synchronize()
    streams, rows = (None, torch.cuda.default_stream(), cupy.cuda.Stream.null), list(y)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for stream, row in zip(streams, rows, strict=True):
                launcher(stream, 4, 256, x, row, N)
        except BaseException as error:  # noqa: BLE001 - reported below
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert errors == []
    synchronize()
    for row in y:
        cupy.testing.assert_array_equal(row, x + 3)
