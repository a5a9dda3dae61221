"""Two tiers on a GPU: launches before, during and after the exchange; what graphs hold; kernels that differ in size."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

import jitlto
from jitlto.base.config import Config
from jitlto.build.pipeline import build
from jitlto.cuda import device
from jitlto.families import declaration
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.session import Session
from tests.support.families import MINI, tiered, write_family

pytestmark = pytest.mark.gpu

#: Kernels that count, by a function that does much more if it is asked, which no kernel does.
COUNT = MINI | {
    "op.cuh": """#pragma once
namespace mini {
template <typename T> __device__ T op(T a, int rounds);
}
""",
    "kern.cu.jinja": MINI["kern.cu.jinja"].replace("op<T>(x[i])", "op<T>(x[i], 0)"),
    "op.json": '{"data_type": ["float"], "_op": [{"op_name": "next", "step": "1"}, {"op_name": "skip", "step": "2"}]}',
    "kern.json": '{"data_type": ["float"]}',
    "op.cu.jinja": """#include "op.cuh"
namespace mini {
template <typename T> __device__ T op(T a, int rounds) {
  if (rounds) {
    T many[192];
#pragma unroll
    for (int i = 0; i < 192; i++) many[i] = a * T(i) + T(rounds);
    for (int r = 0; r < rounds; r++)
#pragma unroll
      for (int i = 0; i < 192; i++) many[i] = many[(i * 7 + 1) % 192] * many[i] + a;
    a = 0;
#pragma unroll
    for (int i = 0; i < 192; i++) a += many[i];
  }
  return a + {{step}};
}
template __device__ {{data_type}} op<{{data_type}}>({{data_type}}, int);
}
""",
}
SIZE = 1000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiers")
    files = write_family(directory, tiered(COUNT, sass=f'"{device.architecture()}"'))
    return build([declaration.load_family(files)], directory / "count.fragdb", jobs=1).path


@pytest.fixture
def family(path: Path, tmp_path: Path) -> KernelFamily:
    """In a session of its own, whose cache is empty."""
    return jitlto.load("mini", path, session=Session(Config.read({"JITLTO_CACHE_DIR": str(tmp_path / "cache")})))


def zeros() -> Any:
    import cupy

    return cupy.zeros(SIZE, "f4")


def test_every_launch_before_and_after_the_exchange_is_done_once(family: KernelFamily) -> None:
    import cupy

    fast = family.launcher(data_type="float", op_name="next")
    x, stream, tiers = zeros(), cupy.cuda.get_current_stream(), []
    while len(tiers) < 100_000 and tiers[-100:] != ["lto"] * 100:
        tiers.append(fast.tier)
        fast(stream, 8, 128, x, SIZE)
    assert tiers[-1] == "lto"
    np.testing.assert_array_equal(x.get(), float(len(tiers)))


def test_both_tiers_give_the_same_results(family: KernelFamily) -> None:
    found = []
    for how in ({"link_mode": "sass"}, {"link_options": {"tiered": False}}):
        x = zeros()
        family.launcher(data_type="float", op_name="skip", **how)(None, 8, 128, x, SIZE)
        found.append(x.get())
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(found[0], 2.0)


def test_a_graph_holds_the_kernel_with_lto(family: KernelFamily) -> None:
    import cupy

    x, stream = zeros(), cupy.cuda.Stream(non_blocking=True)
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    launcher = family.launcher(data_type="float", op_name="next")
    cupy.cuda.Device().synchronize()
    driver.cuStreamBeginCapture(stream.ptr, mode)
    launcher(stream, 8, 128, x, SIZE)
    status, graph = driver.cuStreamEndCapture(stream.ptr)
    assert (status, launcher.tier) == (0, "lto")
    _, runnable = driver.cuGraphInstantiate(graph, 0)
    driver.cuGraphLaunch(runnable, stream.ptr)
    stream.synchronize()
    np.testing.assert_array_equal(x.get(), 1.0)
    _, nodes, _ = driver.cuGraphGetNodes(graph, 1)
    _, parameters = driver.cuGraphKernelNodeGetParams(nodes[0])
    _, function = driver.cuKernelGetFunction(int(launcher.handle))
    assert {int(launcher.handle), int(function)} & {int(parameters.kern), int(parameters.func)}


def test_a_sequence_holds_the_kernel_with_lto(family: KernelFamily) -> None:
    x, launcher = zeros(), family.launcher(data_type="float", op_name="next")
    several = jitlto.sequence(None, [launcher.step(8, 128, x, SIZE)] * 3)
    several()
    assert launcher.tier == "lto"
    np.testing.assert_array_equal(x.get(), 3.0)


def test_a_block_for_which_the_fast_kernel_has_too_many_registers_waits_for_lto(family: KernelFamily) -> None:
    machine_code = family.launcher(data_type="float", op_name="next", link_mode="sass")
    assert machine_code.kernel.attributes[0].max_threads_per_block < 1024
    x, launcher = zeros(), family.launcher(data_type="float", op_name="next")
    launcher(None, 1, 1024, x, SIZE)
    assert launcher.tier == "lto"
    np.testing.assert_array_equal(x.get(), 1.0)


def test_shared_memory_above_48_kb_is_granted_to_both(family: KernelFamily) -> None:
    x, launcher = zeros(), family.launcher(data_type="float", op_name="next")
    launcher(None, 8, 128, x, SIZE, shared_memory=100_000)
    launcher.wait()
    for _ in range(4):  # by the core, too
        launcher(None, 8, 128, x, SIZE, shared_memory=100_000)
    np.testing.assert_array_equal(x.get(), 5.0)
