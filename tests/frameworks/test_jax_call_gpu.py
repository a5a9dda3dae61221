"""Calls from JAX on a GPU: against NumPy, under jit, vmap and grad, in command buffers, and with a kept program."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitlto import Operator
from jitlto import jax_call as make
from jitlto.database import FragmentDatabase
from jitlto.runtime.family import KernelFamily
from tests.support import launch_core
from tests.support.families import built
from tests.support.lazy import Lazy
from tests.support.operators import FAMILY, declare
from tests.support.process import output_of

pytestmark = pytest.mark.gpu
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other tests use the GPU too
jax, module = Lazy("jax"), Lazy("jitlto.frameworks.jax_call")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        jax.devices("cuda")
    except RuntimeError:
        pytest.skip("this JAX sees no GPU")
    return built(tmp_path_factory.mktemp("operators"), FAMILY, "operators").database.path


@pytest.fixture(scope="module")
def operators(database: Path) -> Iterator[dict[str, Operator]]:
    core = module.extension() or launch_core.core()
    with pytest.MonkeyPatch.context() as patch, jax.enable_x64(True):
        patch.setattr(module, "extension", lambda: core)
        yield declare(KernelFamily("operators", FragmentDatabase(database)), "jitlto_jax_gpu")


def rows(m: int = 100, n: int = 37, dtype: Any = np.float32, seed: int = 1) -> Any:
    return jax.numpy.asarray(np.random.default_rng(seed).standard_normal((m, n)).astype(dtype))


def equal(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (100, 37), (1000, 1001)])
def test_a_call_computes_what_its_kernel_does(
    operators: dict[str, Operator], dtype: Any, shape: tuple[int, int]
) -> None:
    square, x = make(operators["square"]), rows(*shape, dtype=dtype)
    equal(square(x, 3.0), 3 * np.asarray(x) ** 2)
    equal(jax.jit(lambda x: jax.numpy.tanh(square(x + 1, 0.5)))(x), np.tanh((np.asarray(x) + 1) ** 2 / 2))


def test_what_the_kernel_writes_to_is_returned_and_the_argument_unchanged(operators: dict[str, Operator]) -> None:
    accumulate, total, x = make(operators["accumulate"]), rows(seed=2), rows()
    before = np.asarray(total).copy()
    equal(jax.jit(lambda t: accumulate(accumulate(t, x), x))(total), before + 2 * np.asarray(x))
    equal(total, before)
    donated = jax.jit(accumulate, donate_argnums=0)(total + 0, x)
    equal(donated, before + np.asarray(x))


def test_results_are_right_while_memory_is_reused(operators: dict[str, Operator]) -> None:
    square = jax.jit(make(operators["square"]))
    found = [square(rows(1000, 100, seed=seed)) for seed in range(50)]
    for seed, each in enumerate(found):
        equal(each, np.asarray(rows(1000, 100, seed=seed)) ** 2)


def test_every_device_runs_the_same_program(operators: dict[str, Operator]) -> None:
    devices = jax.devices("cuda")
    if len(devices) < 2:
        pytest.skip("one GPU")
    square = jax.jit(make(operators["square"]))
    for device in devices:
        found = square(jax.device_put(rows(), device))
        assert found.devices() == {device}
        equal(found, np.asarray(rows()) ** 2)


_PROGRAM = """
import collections
import ctypes
import sys
import jax
import numpy as np
from cuda.bindings import driver
from jitlto import jax_call, load
from jitlto.frameworks import jax_call as module
from tests.support import launch_core
from tests.support.launchers import NativeConfig
from tests.support.operators import declare

captures = collections.Counter()

class Watched(module.Cuda):
    def functions(self):
        address, *others = super().functions()
        pointer = ctypes.c_void_p
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(NativeConfig), pointer, pointer, pointer)
        launch = kind(address)

        def watched(config, *arguments):
            status, capture = driver.cuStreamIsCapturing(config[0].stream or 0)
            captures[int(capture) != 0] += 1
            return launch(config, *arguments)

        self.watched = kind(watched)
        return ctypes.cast(self.watched, pointer).value, *others

module.targets[:] = [Watched()]
core = module.extension() or launch_core.core()
module.extension = lambda: core
square = jax_call(declare(load("operators", sys.argv[1]), "jitlto_jax_gpu")["square"])

def chain(x):
    for _ in range(10):
        x = square(x, 0.5) + 1
    return x

x = np.linspace(0, 1, 5000, dtype=np.float32)
expected = x.copy()
for _ in range(10):
    expected = expected ** 2 / 2 + 1
function = jax.jit(chain)
compiled = function.lower(x).compile()
for _ in range(5):
    np.testing.assert_allclose(np.asarray(compiled(jax.numpy.asarray(x))), expected, rtol=1e-4)
print("captured", captures[True], "issued", captures[False])
"""


@pytest.mark.parametrize(
    "flags", ["--xla_gpu_enable_command_buffer=FUSION,CUSTOM_CALL --xla_gpu_graph_min_graph_size=1", ""]
)
def test_command_buffers_and_programs_kept_for_the_next_process(database: Path, tmp_path: Path, flags: str) -> None:
    """The second run takes the program from JAX's cache, where it names kernels by their digests."""
    variables = {
        "XLA_FLAGS": flags,
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    for _ in range(2):
        printed = output_of(_PROGRAM, database, **variables)
        assert "captured 0" not in printed or not flags
    assert list((tmp_path / "jax").iterdir())
