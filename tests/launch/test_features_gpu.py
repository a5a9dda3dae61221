"""What a launcher can do besides launching: be bound, prepared, dispatched, captured, asked what it takes."""

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitlto.database import FragmentDatabase
from jitlto.runtime.family import KernelFamily
from tests.support import launch_core
from tests.support.launchers import launcher_class
from tests.support.process import python

pytestmark = pytest.mark.gpu
#: Launches that two threads make of one launcher.
LAUNCHES = int(os.environ.get("JITLTO_TEST_LAUNCHES", "20000"))


def _twice(mini: KernelFamily) -> Any:
    return mini.launcher(data_type="float", op_name="twice")


# --- dispatch ---


def test_a_dispatcher_chooses_by_the_values_of_each_call(mini: KernelFamily) -> None:
    import cupy as cp

    choose = mini.dispatcher("data_type", "op_name")
    for dtype, name, expected in [(np.float32, "twice", 6), (np.float64, "square", 9), (np.float32, "square", 9)]:
        x = cp.full(10, 3, dtype)
        choose(x.dtype, name)(None, 1, 32, x, 10)
        assert float(x[0]) == expected
        assert choose(x.dtype, name) is mini.launcher(data_type=dtype, op_name=name)
    fixed = mini.dispatcher("data_type", op_name="twice")
    assert fixed("float") is mini.launcher(data_type="float", op_name="twice")


# --- what it takes ---


def test_a_launcher_says_what_it_takes_and_how_it_fills_the_device(mini: KernelFamily) -> None:
    from cuda.core import Device

    launcher = _twice(mini)
    assert launcher.prepare() is launcher
    assert 1 <= launcher.kernel.attributes[Device().device_id].num_regs <= 255
    assert launcher.max_blocks(256) % Device().properties.multiprocessor_count == 0
    assert 0 < launcher.max_blocks(256, 100 * 1024) < launcher.max_blocks(256)


# --- streams and graphs ---


def test_launches_are_captured_in_a_graph_of_torch(mini: KernelFamily) -> None:
    torch = pytest.importorskip("torch")
    launcher = _twice(mini)
    x = torch.ones(100, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            launcher(torch.cuda.current_stream(), 1, 128, x, 100)
    assert x.eq(1).all()
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    assert x.eq(64).all()


def test_launches_are_captured_by_a_graph_builder(mini: KernelFamily) -> None:
    import cupy as cp
    from cuda.core import Device

    launcher = _twice(mini)
    x = cp.ones(100, np.float32)
    Device().sync()
    stream = Device().create_stream()
    builder = Device().create_graph_builder()
    builder.begin_building()
    for _ in range(3):
        launcher(builder, 1, 128, x, 100)
    graph = builder.end_building().complete()
    assert float(x[0]) == 1
    graph.launch(stream)
    graph.launch(stream)
    stream.sync()
    assert float(x[0]) == 64


@pytest.mark.usefixtures("empty_cache")
def test_a_first_link_and_load_inside_a_capture_are_safe(mini_path: Path) -> None:
    import cupy as cp

    fresh = KernelFamily("mini", FragmentDatabase(mini_path))
    x = cp.full(100, 3, np.float32)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        fresh.launcher(data_type="float", op_name="square")(stream, 1, 128, x, 100)
        graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    assert float(x[0]) == 9


# --- threads, forks, ends ---


@pytest.mark.parametrize("way", ["python", "compiled"])
def test_two_threads_launch_one_launcher_and_each_sees_its_own_arguments(
    build_family: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    import cupy as cp

    core = launch_core.core() if way == "compiled" else None
    monkeypatch.setattr("jitlto.launch.signature.extension", lambda: core)
    monkeypatch.setattr("jitlto.launch.launcher.Launcher", launcher_class(core))
    report = build_family(
        {
            "family.toml": '[family]\nname = "own"\n[entrypoint.count]\nmatrix = "m.json"\ntemplate = "c.cu.jinja"\n'
            'params = ["unsigned long long* right", "unsigned mine", "unsigned given"]\n',
            "m.json": "{}",
            "c.cu.jinja": "__global__ void count(unsigned long long* right, unsigned mine, unsigned given)"
            " { if (mine == given) ++*right; }\n",
        },
        "own",
    )
    launcher = KernelFamily("own", FragmentDatabase(report.path)).launcher()
    rights = [cp.zeros(1, np.uint64) for _ in range(2)]
    cp.cuda.Device().synchronize()

    def work(number: int) -> None:
        stream, right = cp.cuda.Stream(non_blocking=True), rights[number]
        for n in range(LAUNCHES // 2):
            value = 2 * n + number
            launcher(stream, 1, 1, right, value & 0xFFFFFFFF, value & 0xFFFFFFFF)
        stream.synchronize()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert hasattr(launcher, "_quick") is (core is not None)
    assert [int(right[0]) for right in rights] == [LAUNCHES // 2] * 2


def test_after_a_fork_cuda_work_is_a_clear_error_and_linking_goes_on(mini_path: Path) -> None:
    code = """if True:
        import os, sys, warnings
        warnings.simplefilter("ignore")
        import cupy as cp, jitlto
        family = jitlto.load("mini", sys.argv[1])
        launcher = family.launcher(data_type="float", op_name="twice")
        x = cp.ones(8, cp.float32)
        launcher(None, 1, 32, x, 8)
        if os.fork() == 0:
            other = dict(data_type="double", op_name="twice")
            for attempt in (lambda: launcher(1, 1, 32, 0, 8), lambda: family.launcher(**other)):
                try:
                    attempt()
                    print("no error")
                except jitlto.JitltoError as error:
                    print(type(error).__name__, "forked" in str(error), flush=True)
            cubin = family.plan(arch="sm_90", data_type="double", op_name="square").link().cubin
            print(cubin[:4] == b"\\x7fELF", flush=True)
            os._exit(0)
        os.wait()
        launcher(None, 1, 32, x, 8)
        print(float(x[0]))
    """
    done = python("-c", code, str(mini_path))
    assert done.stdout.split("\n") == ["NoDeviceError True", "NoDeviceError True", "True", "4.0", ""], done.stderr


def test_the_interpreter_ends_quietly(mini_path: Path) -> None:
    code = """if True:
        import sys
        import cupy as cp, jitlto
        family = jitlto.load("mini", sys.argv[1])
        x = cp.ones(8, cp.float32)
        keep = [family.launcher(data_type="float", op_name=name) for name in ("twice", "square")]
        for _ in range(3):
            keep[0](None, 1, 32, x, 8)
        globals()["cycle"] = [keep, globals()]
    """
    done = python("-c", code, str(mini_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- several devices ---


def test_one_launcher_launches_on_every_device_of_its_architecture(mini: KernelFamily) -> None:
    import cupy as cp

    if cp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is one device")
    failures: list[object] = []

    def work(number: int) -> None:
        with cp.cuda.Device(number):
            x = cp.full(1000, number + 1.0, np.float32)
            stream = cp.cuda.Stream(non_blocking=True)
            cp.cuda.Device(number).synchronize()
            launcher = mini.launcher(data_type="float", op_name="twice")
            for _ in range(10):
                launcher(stream, 4, 256, x, 1000)
            stream.synchronize()
            if not bool((x == (number + 1) * 2.0**10).all()):
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for number in (1, 0):
        work(number)
    assert not failures
