"""Arrays and streams of the real libraries on a GPU: read cheaply, mixed at will, and refused as the converters do."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jitlto.launch import core, signature
from jitlto.launch.launcher import Launcher
from jitlto.runtime.family import KernelFamily
from tests.support.families import built
from tests.support.launchers import launcher_class

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
""",
    "one.json": "{}",
    "add.cu.jinja": """
__global__ void add(const float* x, float* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 3.0f;
}
""",
}


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    return built(tmp_path_factory.mktemp("libraries"), _FAMILY, "libraries")


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
