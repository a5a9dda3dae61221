"""Variables of a launcher: found by their names in C++ or mangled, read and written by the host."""

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from jitlto.base.errors import LaunchError
from jitlto.cuda.elf import read_variables
from jitlto.database import FragmentDatabase
from jitlto.launch import variables
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises
from tests.support.families import built, calling_op

FAMILY = calling_op(
    "host",
    "__device__ float op(int n);",
    """
namespace ns { __constant__ float table[4]; __device__ int written; template <class T> __constant__ T pair[2]; }
namespace { __device__ float hidden[2]; __device__ float own[3]; }
static __device__ int alone;
__device__ int inside() { static int removed; return removed++; }
extern "C" { __device__ double unused; }
__global__ void kern(float* out, int n) {
  own[n % 3] += 1;
  hidden[n % 2] = op(n);
  out[0] = ns::table[n] + ns::pair<float>[1] + own[(n + 1) % 3];
  out[1] = ns::written;
  ns::written = n;
}
""",
)
OP = "namespace { __device__ float hidden[4]; }\n__device__ float op(int n) { return hidden[n % 4] += 1; }"
NOT_FOUND = driver.CUresult.CUDA_ERROR_NOT_FOUND


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    """A family whose kernels have variables."""
    database = built(tmp_path_factory.mktemp("host"), FAMILY, "host").database
    return KernelFamily("host", FragmentDatabase(database.path))


class _Driver:
    """Notes which variables it is asked for; those called ``managed`` are no plain globals."""

    CUresult = driver.CUresult
    status = driver.CUresult.CUDA_SUCCESS

    def cuLibraryGetGlobal(self, library: int, name: bytes) -> tuple[Any, ...]:  # noqa: N802
        self.asked = (library, name.decode())
        return (NOT_FOUND, None, None) if b"managed" in name else (self.status, driver.CUdeviceptr(4096), 16)

    def cuLibraryGetManaged(self, library: int, name: bytes) -> tuple[Any, ...]:  # noqa: N802
        return self.status, driver.CUdeviceptr(8192), 4


@pytest.fixture
def of_driver(monkeypatch: pytest.MonkeyPatch) -> _Driver:
    """A driver in place of the real one."""
    fake = _Driver()
    monkeypatch.setattr(variables, "driver", fake)
    monkeypatch.setattr(variables.device, "ensure_context", lambda: None)
    monkeypatch.setattr(variables.device, "allowed_in_captures", contextlib.nullcontext)
    return fake


def _find(code: bytes) -> Callable[[str], variables.Variable]:
    """``launcher.variable`` of a launcher with this code."""
    about = SimpleNamespace(
        cubin=code, chosen=SimpleNamespace(kernel="host/kern"), linked=SimpleNamespace(target="sm_90")
    )
    return lambda name: variables.find_variable(about, 5, name)


@pytest.fixture(scope="module")
def cubin(host: KernelFamily) -> bytes:
    """The linked kernel."""
    return host.planner().add_source(OP).plan(arch="sm_90").link().cubin


@pytest.mark.parametrize(
    ("name", "mangled"),
    [
        ("ns::table", "_ZN2ns5tableE"),
        ("::ns::table", "_ZN2ns5tableE"),
        ("_ZN2ns5tableE", "_ZN2ns5tableE"),
        ("ns::pair< float >", "_ZN2ns4pairIfEE"),
        ("own", "3ownE"),
        ("(anonymous namespace)::own", "3ownE"),
        ("unused", "unused"),
    ],
)
def test_a_variable_is_found_by_its_name(cubin: bytes, of_driver: _Driver, name: str, mangled: str) -> None:
    found = _find(cubin)(name)
    assert of_driver.asked[0] == 5
    assert of_driver.asked[1].endswith(mangled)
    assert (found.address, found.size) == (4096, 16)
    assert found.__cuda_array_interface__["data"] == (4096, False)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("table", "did you mean 'ns::table'"), ("inside()::removed", "ns::written"), ("hidden", "6hiddenE")],
    ids=["nearly", "removed", "of two fragments"],
)
def test_a_name_of_no_variable_or_of_several_is_an_error(cubin: bytes, name: str, hint: str) -> None:
    with raises(LaunchError, "launch-variable", hint):
        _find(cubin)(name)


def test_the_driver_tells_managed_variables_apart(of_driver: _Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variables, "read_variables", lambda _: {"managed"})
    assert _find(b"")("managed").address == 8192


def test_what_the_driver_refuses_is_an_error(cubin: bytes, of_driver: _Driver) -> None:
    of_driver.status = driver.CUresult.CUDA_ERROR_INVALID_IMAGE
    with raises(LaunchError, "launch-variable", "CUDA_ERROR_INVALID_IMAGE"):
        _find(cubin)("unused")


@pytest.mark.parametrize("link_mode", ["lto", "ptx"])
def test_a_link_keeps_every_variable_outside_functions(host: KernelFamily, link_mode: str) -> None:
    source = f"{OP}\n__device__ int never; extern const __device__ int fixed[2] = {{1, 2}}; __constant__ int zero;"
    plan = host.planner().add_source(source).plan(arch="sm_90", link_mode=link_mode)
    kept = {"unused", "alone", "never", "fixed", "zero", "_ZN2ns5tableE", "_ZN2ns7writtenE", "_ZN2ns4pairIfEE"}
    assert kept <= read_variables(plan.link(use_cache=False).cubin)


@pytest.mark.gpu
def test_a_kernel_reads_what_the_host_wrote_and_the_host_what_it_wrote(host: KernelFamily) -> None:
    import cupy as cp

    launcher: Any = host.planner().add_source(OP).launcher()
    table, written = launcher.variable("ns::table"), launcher.variable("ns::written")
    assert (table.size, written.size) == (16, 4)
    cp.asarray(table).view(np.float32).set(np.arange(4, dtype=np.float32) * 10)
    memory = cp.cuda.UnownedMemory(written.address, written.size, written)
    count = cp.ndarray(1, np.int32, cp.cuda.MemoryPointer(memory, 0))
    count[0] = 42
    out = cp.zeros(2, np.float32)
    launcher(None, 1, 1, out, 3)
    assert out.tolist() == [30, 42]
    assert int(count[0]) == 3


@pytest.mark.gpu
def test_each_device_has_its_own(host: KernelFamily) -> None:
    import cupy as cp

    if cp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two devices")
    launcher: Any = host.planner().add_source(OP).launcher()
    results = []
    for number in range(2):
        with cp.cuda.Device(number):
            cp.asarray(launcher.variable("ns::written")).view(np.int32)[0] = 5 + number
    for number in range(2):
        with cp.cuda.Device(number):
            out = cp.zeros(2, np.float32)
            launcher(None, 1, 1, out, 1)
            results.append(float(out[1]))
    assert results == [5, 6]
