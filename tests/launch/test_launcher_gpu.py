"""Launching on a GPU: arguments by signature, streams, launch attributes, the cache of launchers."""

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitlto.base.errors import ArgumentError, LaunchError
from jitlto.database import FragmentDatabase
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises

pytestmark = pytest.mark.gpu


def _twice(mini: KernelFamily) -> Any:
    return mini.launcher(data_type="float", op_name="twice")


def test_scalars_arrive_as_their_parameters_types(kernels: KernelFamily) -> None:
    import cupy as cp

    out = cp.zeros(10)
    launcher = kernels.launcher(entry="scalars")
    launcher(None, 1, 1, out, True, -7, 65535, -(2**31), 2**63 + 5, 0.1, 0.1, 1.5, np.float64(3.140625), None)
    expected = [1, -7, 65535, -(2**31), 2**31, float(np.float32(0.1)), 0.1, 1.5, 3.140625, 1]
    np.testing.assert_array_equal(cp.asnumpy(out), expected)


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


def test_bfloat16_tensors_are_taken_for_bfloat16_parameters(kernels: KernelFamily) -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.5, -2.0, 0.25], dtype=torch.bfloat16, device="cuda")
    kernels.launcher(entry="bfloat")(None, 1, 32, x, 3)
    torch.cuda.synchronize()
    assert x.tolist() == [3.0, -4.0, 0.5]
    with raises(ArgumentError, "launch-argument-dtype", "'x'"):
        kernels.launcher(entry="bfloat")(None, 1, 32, x.float(), 3)


def test_a_cooperative_grid_runs_all_at_once_and_one_too_large_is_refused(kernels: KernelFamily) -> None:
    import cupy as cp
    from cuda.core import Device

    launcher = kernels.launcher(entry="barrier")
    blocks = Device().properties.multiprocessor_count
    arrived = cp.zeros(1, np.uint32)
    launcher(None, blocks, 32, arrived, cooperative=True)
    assert int(arrived[0]) == blocks
    with raises(LaunchError, "launch-failed", "barrier"):
        launcher(None, 1_000_000, 32, arrived, cooperative=True)


def test_dynamic_shared_memory_above_48_kb_is_granted(kernels: KernelFamily) -> None:
    import cupy as cp

    launcher = kernels.launcher(entry="shared")
    out = cp.zeros(1, np.uint32)
    # More, less, and more again: what was granted once is not taken back.
    for size in (1024, 100 * 1024, 160 * 1024, 60 * 1024, 160 * 1024):
        launcher(None, 1, 128, out, size // 4, shared_memory=size)
        assert int(out[0]) == size // 4 - 1
    with raises(LaunchError, "launch-shared-memory", str(1 << 30)):
        launcher(None, 1, 128, out, 256, shared_memory=1 << 30)


def test_clusters_are_counted_in_blocks(kernels: KernelFamily) -> None:
    import cupy as cp
    from cuda.core import Device

    if Device().compute_capability.major < 9:
        pytest.skip("clusters need compute capability 9.0")
    launcher = kernels.launcher(entry="clusters")
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
