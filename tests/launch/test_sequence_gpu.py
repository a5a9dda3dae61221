"""Sequences on a GPU: results against NumPy, graphs that are updated, captures, streams and arrays that go, threads."""

import gc
import logging
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitlto
from jitlto import Slot
from jitlto.database import FragmentDatabase
from jitlto.launch.sequence import LaunchSequence
from jitlto.runtime.family import KernelFamily
from tests.support.process import python

pytestmark = pytest.mark.gpu
N = 1000


@pytest.fixture(autouse=True)
def _graphs_only(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No test may pass because its launches were issued one by one after all."""
    with caplog.at_level(logging.WARNING, "jitlto.launch"):
        yield
    assert [record.getMessage() for record in caplog.records if record.name == "jitlto.launch"] == []


def _arrays(count: int) -> tuple[list[Any], list[Any]]:
    """Arrays of small whole numbers, whose sums are exact, on the device and on the host."""
    import cupy as cp

    host = [np.random.default_rng(seed).integers(-3, 4, N).astype(np.float32) for seed in range(count)]
    device = [cp.asarray(each) for each in host]
    cp.cuda.Device().synchronize()
    return device, host


def _check(device: list[Any], host: list[Any]) -> None:
    import cupy as cp

    cp.cuda.Device().synchronize()
    for number, (found, expected) in enumerate(zip(device, host, strict=True)):
        np.testing.assert_array_equal(cp.asnumpy(found), expected, err_msg=f"array {number}")


# --- results ---


@pytest.mark.parametrize("kind", ["none", "cupy", "core", "legacy", "per thread"])
def test_sequences_compute_what_numpy_computes(kernels: KernelFamily, kind: str) -> None:
    import cupy as cp
    from cuda.core import Device

    axpy, choose = kernels.launcher(entry="axpy"), random.Random(kind)  # noqa: S311 - a test
    device, host = _arrays(6)
    makers: dict[str, Callable[[], Any]] = {
        "none": lambda: None,
        "cupy": lambda: cp.cuda.Stream(non_blocking=True),
        "core": lambda: Device().create_stream(),
        "legacy": lambda: 1,
        "per thread": lambda: 2,
    }
    # What is added never changes, so that the sums stay exact.
    places = [(choose.randrange(3), choose.randrange(3, 6)) for _ in range(12)]
    steps = []
    for number, (x, y) in enumerate(places):
        source = Slot("x") if number % 3 == 0 else device[x]
        scale = Slot("a") if number % 4 == 1 else 1.0
        steps.append(axpy.step(4, 256, scale, source, device[y], N))
    run_all = jitlto.sequence(makers[kind](), steps, x=device[0], a=1)
    now = {"x": 0, "a": 1}
    for _ in range(20):
        changed = {}
        if choose.random() < 0.6:
            now["x"] = choose.randrange(3)
            changed["x"] = device[now["x"]]
        if choose.random() < 0.4:
            now["a"] = changed["a"] = choose.choice([-1, 0, 1])
        run_all(**changed)
        for number, (x, y) in enumerate(places):
            source = host[now["x"] if number % 3 == 0 else x]
            host[y] = np.float32(now["a"] if number % 4 == 1 else 1) * source + host[y]
    _check(device, host)
    assert run_all._graph is not None


def test_every_kind_of_launch_is_a_node_whose_arguments_are_replaced(kernels: KernelFamily) -> None:
    import cupy as cp
    from cuda.core import Device

    if Device().compute_capability.major < 9:
        pytest.skip("clusters need compute capability 9.0")
    axpy, barrier, shared, clusters = (
        kernels.launcher(entry=name) for name in ("axpy", "barrier", "shared", "clusters")
    )
    blocks = Device().properties.multiprocessor_count
    size = 100 * 1024
    device, host = _arrays(2)

    def outputs() -> dict[str, Any]:
        return {
            "arrived": cp.zeros(1, np.uint32),
            "word": cp.zeros(1, np.uint32),
            "words": size // 4,
            "extent": cp.zeros(8, np.uint32),
        }

    first = outputs()
    run_all = jitlto.sequence(
        None,
        [
            barrier.step(blocks, 32, Slot("arrived"), cooperative=True),
            shared.step(1, 128, Slot("word"), Slot("words"), shared_memory=size),
            clusters.step(8, 32, Slot("extent"), cluster=2),
            axpy.step(4, 256, 1.0, device[0], device[1], N, programmatic=True),
            axpy.step(4, 256, 1.0, device[0], device[1], N, programmatic=True),
        ],
        **first,
    )
    for number in range(3):
        given = first if number == 0 else outputs() | {"words": 100 * number}
        cp.cuda.Device().synchronize()
        run_all(**given)
        assert int(given["arrived"][0]) == blocks
        assert int(given["word"][0]) == given["words"] - 1
        cp.testing.assert_array_equal(given["extent"], cp.full(8, 2, np.uint32))
    host[1] = host[0] * 6 + host[1]
    _check(device, host)
    assert run_all._graph is not None


# --- captures ---


def test_a_sequence_is_captured_like_its_launches(kernels: KernelFamily) -> None:
    import cupy as cp

    axpy = kernels.launcher(entry="axpy")
    device, host = _arrays(3)
    stream = cp.cuda.Stream(non_blocking=True)
    run_all = jitlto.sequence(stream, [axpy.step(4, 256, 1.0, Slot("x"), device[2], N)] * 4, x=device[0])
    run_all()
    with stream:
        stream.begin_capture()
        run_all(x=device[1])
        run_all()
        graph = stream.end_capture()
    stream.synchronize()
    host[2] = 4 * host[0] + host[2]
    _check(device, host)
    graph.launch(stream)
    run_all()
    host[2] = 12 * host[1] + host[2]
    _check(device, host)


def test_a_sequence_is_captured_by_a_graph_builder_and_by_torch(kernels: KernelFamily) -> None:
    from cuda.core import Device

    axpy = kernels.launcher(entry="axpy")
    device, host = _arrays(2)
    steps = [axpy.step(4, 256, 1.0, device[0], device[1], N)] * 3
    stream = Device().create_stream()
    builder = Device().create_graph_builder()
    builder.begin_building()
    jitlto.sequence(builder, steps)()
    graph = builder.end_building().complete()
    graph.launch(stream)
    host[1] = 3 * host[0] + host[1]
    _check(device, host)
    torch = pytest.importorskip("torch")
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        jitlto.sequence(torch.cuda.current_stream(), steps)()
    _check(device, host)
    captured.replay()
    host[1] = 3 * host[0] + host[1]
    _check(device, host)


@pytest.mark.parametrize("mode", [0, 1, 2])  # cudaStreamCaptureMode: global, thread-local, relaxed
def test_a_graph_is_made_while_another_stream_is_captured(kernels: KernelFamily, mode: int) -> None:
    import cupy as cp

    axpy = kernels.launcher(entry="axpy").prepare()
    device, host = _arrays(2)
    stream, other = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    run_all = jitlto.sequence(other, [axpy.step(4, 256, 1.0, Slot("x"), device[1], N)] * 2, x=device[0])
    with stream:
        stream.begin_capture(mode)
        axpy(stream, 4, 256, 1.0, device[0], device[1], N)
        run_all()
        run_all(x=device[0])
        graph = stream.end_capture()
    other.synchronize()
    graph.launch(stream)
    host[1] = 5 * host[0] + host[1]
    _check(device, host)
    assert run_all._graph is not None


# --- errors ---


# --- lifetimes ---


def test_launches_in_flight_keep_the_arguments_that_they_were_launched_with(kernels: KernelFamily) -> None:
    import cupy as cp

    late = kernels.launcher(entry="late")
    stream = cp.cuda.Stream(non_blocking=True)
    device, host = _arrays(5)
    run_all = jitlto.sequence(stream, [late.step(4, 256, Slot("a"), Slot("x"), device[4], N)] * 2, x=device[0], a=1)
    for number in range(4):
        run_all(x=device[number], a=number)  # while the earlier ones run
        host[4] = 2 * np.float32(number) * host[number] + host[4]
    _check(device, host)


def test_arrays_that_only_the_sequence_refers_to_live_and_replaced_ones_are_freed(kernels: KernelFamily) -> None:
    import cupy as cp

    axpy = kernels.launcher(entry="axpy")
    y = cp.zeros(N, np.float32)
    run_all = jitlto.sequence(
        None, [axpy.step(4, 256, 1.0, Slot("x"), y, N), axpy.step(4, 256, 1.0, cp.ones(N, np.float32), y, N)],
        x=cp.full(N, 2, np.float32),
    )  # fmt: skip
    gc.collect()
    run_all()
    noise = [cp.full(N, 99, np.float32) for _ in range(50)]  # where freed arrays would have been
    run_all()
    assert float(y.min()) == float(y.max()) == 6
    used = cp.get_default_memory_pool().used_bytes()
    for value in range(20):
        run_all(x=cp.full(N, value, np.float32))
    cp.cuda.Device().synchronize()
    assert cp.get_default_memory_pool().used_bytes() == used
    assert float(y[0]) == 6 + 20 + sum(range(20))
    del noise


def test_a_sequence_may_go_while_it_runs(kernels_path: Path) -> None:
    import cupy as cp

    device, host = _arrays(2)
    stream = cp.cuda.Stream(non_blocking=True)
    launcher = KernelFamily("kernels", FragmentDatabase(kernels_path)).launcher(entry="late")
    run_all: LaunchSequence | None = jitlto.sequence(stream, [launcher.step(4, 256, 1.0, device[0], device[1], N)] * 3)
    assert run_all is not None
    run_all()
    run_all = None
    gc.collect()
    host[1] = 3 * host[0] + host[1]
    _check(device, host)
    del launcher


# --- threads, ends ---


def test_a_thread_without_a_context_gets_one(kernels: KernelFamily) -> None:
    from cuda.core import Device

    device, host = _arrays(2)
    step = kernels.launcher(entry="axpy").step(4, 256, 1.0, *device, N)
    for stream in (None, Device().create_stream()):
        thread = threading.Thread(target=jitlto.sequence(stream, [step] * 2))
        thread.start()
        thread.join()
        host[1] = 2 * host[0] + host[1]
        _check(device, host)


def test_after_a_fork_a_sequence_is_refused_and_the_interpreter_ends_quietly(kernels_path: Path) -> None:
    code = """if True:
        import os, sys, warnings
        warnings.simplefilter("ignore")
        import cupy as cp, jitlto
        launcher = jitlto.load("kernels", sys.argv[1]).launcher(entry="axpy")
        x, y = cp.ones(8, cp.float32), cp.zeros(8, cp.float32)
        run_all = jitlto.sequence(None, [launcher.step(1, 32, 1.0, x, y, 8)] * 2)
        run_all()
        print(float(y[0]), flush=True)
        if os.fork() == 0:
            try:
                run_all()
                print("no error", flush=True)
            except jitlto.JitltoError as error:
                print(error.code, flush=True)
            del run_all
            os._exit(0)
        os.wait()
        run_all()
        print(float(y[0]), flush=True)
        globals()["cycle"] = [run_all, globals()]
    """
    done = python("-c", code, str(kernels_path))
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["2.0", "no-device-forked", "4.0"], "")
