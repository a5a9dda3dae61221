"""Launching on a GPU: arguments by signature, streams, launch attributes, the cache of launchers."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitlto.base.errors import ArgumentError, LaunchError, LinkError
from jitlto.base.python_warnings import LinkWarning
from jitlto.build.pipeline import build
from jitlto.cuda.nvjitlink import link
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.session import Session
from tests.support.errors import raises
from tests.support.families import write_family
from tests.support.launch_kernels import TEMPLATES

pytestmark = pytest.mark.gpu

_LAUNCH = {
    "family.toml": """
[family]
name = "launch"
archs = ["75", "90"]

[entrypoint.scalars]
matrix = "one.json"
template = "scalars.cu.jinja"
params = ["double* out", "bool b", "signed char c", "unsigned short s", "int i", "unsigned long long u", "float f",
          "double d", "__half h", "__nv_bfloat16 g", "const float* p"]

[entrypoint.barrier]
matrix = "one.json"
template = "barrier.cu.jinja"
params = ["unsigned* arrived"]

[entrypoint.shared]
matrix = "one.json"
template = "shared.cu.jinja"
params = ["unsigned* out", "unsigned words"]

[entrypoint.bfloat]
matrix = "one.json"
template = "bfloat.cu.jinja"
params = ["__nv_bfloat16* x", "unsigned n"]

[entrypoint.clusters]
matrix = "one.json"
template = "clusters.cu.jinja"
params = ["unsigned* out"]
""",
    **TEMPLATES,
    "one.json": "{}",
    "bfloat.cu.jinja": """
#include <cuda_bf16.h>
__global__ void bfloat(__nv_bfloat16* x, unsigned n) {
  if (threadIdx.x < n) x[threadIdx.x] = __float2bfloat16(2.0f * __bfloat162float(x[threadIdx.x]));
}
""",
}


@pytest.fixture(scope="module")
def launch_family(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    directory = tmp_path_factory.mktemp("launch")
    report = build([declaration.load_family(write_family(directory, _LAUNCH))], directory / "launch.fragdb")
    return KernelFamily("launch", FragmentDatabase(report.path))


def _twice(mini: KernelFamily) -> Any:
    return mini.launcher(data_type="float", op_name="twice")


def test_scalars_arrive_as_their_parameters_types(launch_family: KernelFamily) -> None:
    import cupy as cp

    out = cp.zeros(10)
    launcher = launch_family.launcher(entry="scalars")
    launcher(None, 1, 1, out, True, -7, 65535, -(2**31), 2**63 + 5, 0.1, 0.1, 1.5, np.float64(3.140625), None)
    expected = [1, -7, 65535, -(2**31), 2**31, float(np.float32(0.1)), 0.1, 1.5, 3.140625, 1]
    np.testing.assert_array_equal(cp.asnumpy(out), expected)


def test_arguments_that_do_not_fit_are_type_errors_that_name_the_parameter(mini: KernelFamily) -> None:
    import cupy as cp

    launcher = _twice(mini)
    good = cp.ones(8, np.float32)
    frozen = np.ones(8, np.float32)
    for arguments, case, name in [
        ((cp.ones(8, np.float64), 8), "dtype", "'x'"),
        ((cp.ones(8, np.int32), 8), "dtype", "'x'"),
        ((frozen, 8), "host-memory", "'x'"),
        ((frozen.ctypes.data, 8), "host-memory", "'x'"),
        ((cp.ones((8, 8), np.float32).T, 8), "not-contiguous", "'x'"),
        ((cp.ones(8, np.float32)[::2], 4), "not-contiguous", "'x'"),
        ((good,), "count", "'n'"),
        ((good, 8, 9), "count", "got 3"),
        ((good, 1.5), "type", "'n'"),
        ((good, -1), "range", "'n'"),
        ((good, 1 << 32), "range", "'n'"),
        (("text", 8), "type", "'x'"),
    ]:
        for _ in range(3):  # the plain way, and by the core
            with raises(ArgumentError, f"launch-argument-{case}", name) as caught:
                launcher(None, 1, 32, *arguments)
            assert isinstance(caught.value, TypeError)
    cp.testing.assert_array_equal(good, cp.ones(8, np.float32))


def test_every_kind_of_array_and_stream_is_taken(mini: KernelFamily) -> None:
    import cupy as cp
    from cuda.core import Device

    launcher = _twice(mini)
    x = cp.ones(100, np.float32)
    device = Device()
    own = device.create_stream()
    cupy_stream = cp.cuda.Stream(non_blocking=True)
    launched = 0
    for stream in (None, 0, cp.cuda.get_current_stream(), cupy_stream, cupy_stream.ptr, own, int(own.handle)):
        launcher(stream, 1, 128, x, 100)
        device.sync()
        launched += 1
    launcher(None, 1, 128, int(x.data.ptr), 100)
    launcher(None, 1, 128, _OnlyDLPack(x), np.uint32(100))
    device.sync()
    cp.testing.assert_array_equal(x, cp.full(100, 2.0 ** (launched + 2), np.float32))


class _OnlyDLPack:
    """An array that speaks nothing but DLPack."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_torch_tensors_are_taken_and_host_tensors_are_not(mini: KernelFamily) -> None:
    torch = pytest.importorskip("torch")
    launcher = _twice(mini)
    tensor = torch.ones(64, device="cuda")
    launcher(torch.cuda.current_stream(), 1, 64, tensor, 64)
    torch.cuda.synchronize()
    assert tensor.eq(2).all()
    with raises(ArgumentError, "launch-argument-host-memory"):
        launcher(None, 1, 64, torch.ones(64), 64)
    with raises(ArgumentError, "launch-argument-dtype", "'x'"):
        launcher(None, 1, 64, tensor.bfloat16(), 64)
    with raises(ArgumentError, "launch-argument-dtype", "'x'"):
        launcher(None, 1, 64, tensor.double(), 64)


def test_bfloat16_tensors_are_taken_for_bfloat16_parameters(launch_family: KernelFamily) -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.5, -2.0, 0.25], dtype=torch.bfloat16, device="cuda")
    launch_family.launcher(entry="bfloat")(None, 1, 32, x, 3)
    torch.cuda.synchronize()
    assert x.tolist() == [3.0, -4.0, 0.5]
    with raises(ArgumentError, "launch-argument-dtype", "'x'"):
        launch_family.launcher(entry="bfloat")(None, 1, 32, x.float(), 3)


def test_a_cooperative_grid_runs_all_at_once_and_one_too_large_is_refused(launch_family: KernelFamily) -> None:
    import cupy as cp
    from cuda.core import Device

    launcher = launch_family.launcher(entry="barrier")
    blocks = Device().properties.multiprocessor_count
    arrived = cp.zeros(1, np.uint32)
    launcher(None, blocks, 32, arrived, cooperative=True)
    assert int(arrived[0]) == blocks
    with raises(LaunchError, "launch-failed", "barrier"):
        launcher(None, 1_000_000, 32, arrived, cooperative=True)


def test_dynamic_shared_memory_above_48_kb_is_granted(launch_family: KernelFamily) -> None:
    import cupy as cp

    launcher = launch_family.launcher(entry="shared")
    out = cp.zeros(1, np.uint32)
    # More, less, and more again: what was granted once is not taken back.
    for size in (1024, 100 * 1024, 160 * 1024, 60 * 1024, 160 * 1024):
        launcher(None, 1, 128, out, size // 4, shared_memory=size)
        assert int(out[0]) == size // 4 - 1
    with raises(LaunchError, "launch-shared-memory", str(1 << 30)):
        launcher(None, 1, 128, out, 256, shared_memory=1 << 30)


def test_clusters_are_counted_in_blocks(launch_family: KernelFamily) -> None:
    import cupy as cp
    from cuda.core import Device

    if Device().compute_capability.major < 9:
        pytest.skip("clusters need compute capability 9.0")
    launcher = launch_family.launcher(entry="clusters")
    out = cp.zeros(8, np.uint32)
    launcher(None, 8, 32, out, cluster=2)
    cp.testing.assert_array_equal(out, cp.full(8, 2, np.uint32))
    with raises(LaunchError, "launch-config", "grid 7", "cluster 2"):
        launcher(None, 7, 32, out, cluster=2)


def test_programmatic_dependent_launches_keep_the_streams_order(mini: KernelFamily) -> None:
    import cupy as cp

    launcher = _twice(mini)
    x = cp.ones(1 << 20, np.float32)
    stream = cp.cuda.Stream()
    for _ in range(10):
        launcher(stream, 1 << 12, 256, x, x.size, programmatic=True)
    stream.synchronize()
    assert float(x.min()) == float(x.max()) == 2.0**10


def test_impossible_launch_configurations_are_named(mini: KernelFamily) -> None:
    import cupy as cp

    launcher = _twice(mini)
    x = cp.ones(8, np.float32)
    for grid, block in [(0, 32), (1, 0), ((1, 1, 1, 1), 32), (-1, 32), (1.5, 32)]:
        with raises(LaunchError, "launch-config", "grid" if block == 32 else "block"):
            launcher(None, grid, block, x, 8)
    with pytest.raises(LaunchError, match=r"2048"):  # by cuda.core or by the driver
        launcher(None, 1, 2048, x, 8)
    launcher(None, 1, 32, x, 8)
    assert float(x[0]) == 2


@pytest.mark.usefixtures("empty_cache")
def test_a_configuration_is_linked_once_whoever_asks(mini_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    opened = KernelFamily("mini", FragmentDatabase(mini_path))
    start = threading.Barrier(16)
    found: list[Any] = []

    def ask(number: int) -> None:
        start.wait()
        spelled: Any = "float" if number % 2 else np.float32
        found.append(opened.launcher(data_type=spelled, op_name="square"))

    with caplog.at_level(logging.INFO, "jitlto"):
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 16
    assert len(set(map(id, found))) == 1
    assert sum("linked mini/kern" in record.getMessage() for record in caplog.records) == 1
    assert opened.launcher(op_name="square", data_type="float") is found[0]


def test_threads_launch_one_launcher_with_their_own_arguments(mini: KernelFamily) -> None:
    import cupy as cp

    launcher = _twice(mini)
    failures: list[object] = []

    def work(number: int) -> None:
        stream = cp.cuda.Stream(non_blocking=True)
        with stream:
            x = cp.full(1000, float(number + 1), np.float32)
            for _ in range(20):
                launcher(stream, 4, 256, x, 1000)
            stream.synchronize()
            if not bool((x == (number + 1) * 2.0**20).all()):
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.usefixtures("empty_cache")
def test_a_failed_link_is_remembered(mini: KernelFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    links = []

    def counted(*args: Any, **options: Any) -> Any:
        links.append(args)
        return link(*args, **options)

    monkeypatch.setattr("jitlto.cuda.nvjitlink.link", counted)
    messages = []
    for _ in range(3):
        with pytest.raises(LinkError) as caught:
            mini.launcher(data_type="float", op_name="twice", link_options={"ptxas": ["--no-such-option"]})
        messages.append(str(caught.value))
    assert len(links) == 1
    assert len(set(messages)) == 1
    assert "no-such-option" in messages[0]


def test_a_launcher_warns_of_what_the_linker_said_once_and_again_from_a_cache(
    mini_path: Path, empty_cache: Path
) -> None:
    layers = []
    for _ in range(2):  # linked, or found by the next process
        with FragmentDatabase(mini_path) as database:
            family = KernelFamily("mini", database, Session())
            with pytest.warns(LinkWarning) as caught:
                for _ in range(3):
                    launcher = family.launcher(data_type="float", op_name="twice", link_options={"max_registers": 3})
            layers.append(launcher.linked.layer)
        assert [warning.filename for warning in caught] == [__file__]
    assert layers == ["link", "disk"]
