"""Sequences launch what single launches would, in order, with the arguments of the call; or they say why not."""

import gc
import logging
import struct
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jitlto
from jitlto import Slot
from jitlto.base.errors import ArgumentError, LaunchError, NoDeviceError
from jitlto.cuda import device
from jitlto.launch.sequence import LaunchSequence
from tests.support.errors import raises
from tests.support.fake_graphs import FakeSequences, StreamStandIn


class DeviceArray:
    """An array on the device."""

    def __init__(self, address: int, typestr: str = "<f4") -> None:
        self.address = address
        self.typestr = typestr

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (4,), "typestr": self.typestr, "data": (self.address, False), "strides": None, "version": 3}


A, B, C = (DeviceArray(address) for address in (0x1000, 0x2000, 0x3000))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeSequences:
    return FakeSequences(monkeypatch, "const float*", "float*", "unsigned")


def _values(fake: FakeSequences) -> list[tuple[int, int, int]]:
    """The arguments of the runs since the last time."""
    return [
        (struct.unpack("<Q", x)[0], struct.unpack("<Q", y)[0], struct.unpack("<I", n)[0])
        for x, y, n in (run.values for run in fake.driver.take())
    ]


def _make(fake: FakeSequences, stream: Any = None) -> LaunchSequence:
    kernel = fake.made
    steps = [
        kernel.step(4, 256, Slot("x"), B, 7),
        kernel.step((2, 3), 128, A, Slot("y"), Slot("n"), shared_memory=64),
        kernel.step(1, 32, Slot("x"), Slot("y"), 9),
    ]
    return jitlto.sequence(stream, steps, x=A, y=B, n=8)


# --- what runs ---


def test_one_call_runs_the_launches_in_order_as_a_graph(fake: FakeSequences) -> None:
    run_all = _make(fake)
    assert not fake.driver.runs
    run_all()
    runs = fake.driver.take()
    assert [(run.grid, run.block, run.shared_memory) for run in runs] == [
        ((4, 1, 1), (256, 1, 1), 0),
        ((2, 3, 1), (128, 1, 1), 64),
        ((1, 1, 1), (32, 1, 1), 0),
    ]
    assert all(run.in_graph and run.stream == 1 for run in runs)
    assert fake.driver.calls.count("cuGraphLaunch") == 1
    assert [graph.edges for graph in fake.driver.graphs] == [[(0, 1, 0), (1, 2, 0)]]


def test_a_replaced_argument_reaches_all_its_places_and_stays(fake: FakeSequences) -> None:
    run_all = _make(fake)
    run_all()
    assert _values(fake) == [(0x1000, 0x2000, 7), (0x1000, 0x2000, 8), (0x1000, 0x2000, 9)]
    run_all(x=C)
    assert _values(fake) == [(0x3000, 0x2000, 7), (0x1000, 0x2000, 8), (0x3000, 0x2000, 9)]
    run_all(y=C, n=1)
    assert _values(fake) == [(0x3000, 0x2000, 7), (0x1000, 0x3000, 1), (0x3000, 0x3000, 9)]
    run_all()
    assert _values(fake) == [(0x3000, 0x2000, 7), (0x1000, 0x3000, 1), (0x3000, 0x3000, 9)]
    assert run_all.arguments == {"x": C, "y": C, "n": 1}


def test_only_the_launches_that_changed_are_updated_and_nothing_is_captured_again(fake: FakeSequences) -> None:
    run_all = _make(fake)
    changes: list[tuple[int, dict[str, Any]]] = [(0, {}), (1, {"n": 3}), (2, {"x": B}), (2, {"y": A, "n": 4}), (0, {})]
    for count, changed in changes:
        fake.driver.calls.clear()
        run_all(**changed)
        assert fake.driver.calls.count("cuGraphExecKernelNodeSetParams") == count
    assert len(fake.driver.graphs) == 1


def test_a_stream_that_is_captured_gets_the_launches_themselves(fake: FakeSequences) -> None:
    run_all = _make(fake, StreamStandIn(5))
    fake.driver.capturing = True
    run_all(x=B)
    assert all(not run.in_graph and run.stream == 5 for run in fake.driver.runs)
    assert _values(fake) == [(0x2000, 0x2000, 7), (0x1000, 0x2000, 8), (0x2000, 0x2000, 9)]
    fake.driver.capturing = False
    run_all()
    assert all(run.in_graph for run in fake.driver.runs)
    assert _values(fake) == [(0x2000, 0x2000, 7), (0x1000, 0x2000, 8), (0x2000, 0x2000, 9)]
    fake.driver.capturing = True
    run_all(x=C)
    fake.driver.capturing = False
    fake.driver.take()
    run_all()  # the graph gets what was replaced during the capture
    assert _values(fake) == [(0x3000, 0x2000, 7), (0x1000, 0x2000, 8), (0x3000, 0x2000, 9)]


def test_attributes_are_those_of_a_launch(fake: FakeSequences) -> None:
    kernel = fake.made
    steps = [
        kernel.step(1, 32, A, B, 1),
        kernel.step(8, 32, A, B, 1, cluster=2),
        kernel.step(1, 32, A, B, 1, cooperative=True),
        kernel.step(1, 32, A, B, 1, programmatic=True),
    ]
    run_all = jitlto.sequence(None, steps)
    run_all()
    in_graph = fake.driver.take()
    fake.driver.capturing = True
    run_all()
    alone = fake.driver.take()
    cluster, cooperative, programmatic = (
        f"CU_LAUNCH_ATTRIBUTE_{name}"
        for name in ("CLUSTER_DIMENSION", "COOPERATIVE", "PROGRAMMATIC_STREAM_SERIALIZATION")
    )
    assert [run.attributes for run in alone] == [set(), {cluster}, {cooperative}, {programmatic}]
    # In a graph the last one is a property of the edge.
    assert [run.attributes for run in in_graph] == [set(), {cluster}, {cooperative}, set()]
    assert fake.driver.graphs[0].edges == [(0, 1, 0), (1, 2, 0), (2, 3, 1)]
    assert [run.grid for run in in_graph] == [run.grid for run in alone] == [(1, 1, 1), (8, 1, 1), (1, 1, 1), (1, 1, 1)]


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.dictionaries(st.sampled_from("xyn"), st.integers(0, 2)))))
def test_every_call_launches_with_the_latest_arguments(
    fake: FakeSequences, calls: list[tuple[bool, dict[str, int]]]
) -> None:
    fake.driver.take()
    run_all, arrays, now = _make(fake), (A, B, C), {"x": 0, "y": 1, "n": 8}
    for capturing, changed in calls:
        fake.driver.capturing = capturing
        now |= changed
        run_all(**{name: index if name == "n" else arrays[index] for name, index in changed.items()})
        x, y, n = arrays[now["x"]].address, arrays[now["y"]].address, now["n"]
        assert _values(fake) == [(x, 0x2000, 7), (0x1000, y, n), (x, y, 9)]
    fake.driver.capturing = False


def test_each_thread_launches_with_its_own_arguments(fake: FakeSequences) -> None:
    kernel = fake.made
    run_all = jitlto.sequence(None, [kernel.step(1, 32, A, B, Slot("n"))] * 3, n=0)

    def work(number: int) -> None:
        for _ in range(50):
            run_all(n=number)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [n for *_, n in _values(fake)]
    assert len(numbers) == 300
    assert all(len(set(numbers[i : i + 3])) == 1 for i in range(0, 300, 3))
    assert sorted(numbers) == [1] * 150 + [2] * 150


def test_structures_are_passed_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSequences(monkeypatch, "float4", "float*", "__int128")
    run_all = jitlto.sequence(
        None, [fake.made.step(1, 32, Slot("scale"), None, Slot("seed"))], scale=np.float32([1, 2, 3, 4]), seed=-1
    )
    run_all()
    run_all(scale=bytes(range(16)), seed=1 << 100)
    assert [run.values for run in fake.driver.take()] == [
        (struct.pack("<4f", 1, 2, 3, 4), bytes(8), b"\xff" * 16),
        (bytes(range(16)), bytes(8), (1 << 100).to_bytes(16, "little")),
    ]


# --- errors ---


@pytest.mark.parametrize("replace", [False, True])
def test_an_argument_that_does_not_fit_is_refused_with_its_launch_and_parameter(
    fake: FakeSequences, replace: bool
) -> None:
    kernel = fake.made
    wrong = DeviceArray(0x4000, "<f8")
    steps = [kernel.step(1, 32, A, B, 1), kernel.step(1, 32, Slot("x"), B, 1)]
    if replace:
        run_all = jitlto.sequence(None, steps, x=A)
        run_all()
        fake.driver.take()
    where = "launch 2 of 2, test/kern, parameter 'a0' (const float*)"
    with raises(ArgumentError, "launch-argument-dtype", "float32", "float64", where=where):
        run_all(x=wrong) if replace else jitlto.sequence(None, steps, x=wrong)
    assert not fake.driver.runs
    if replace:
        run_all()
        assert _values(fake) == [(0x1000, 0x2000, 1)] * 2


def test_of_several_replaced_arguments_all_or_none_are_taken(fake: FakeSequences) -> None:
    run_all = _make(fake)
    with raises(ArgumentError, "launch-argument-range", "'a2'"):
        run_all(x=C, n=-1)
    run_all()
    assert _values(fake)[0] == (0x1000, 0x2000, 7)


def test_fixed_arguments_and_configurations_are_checked_when_the_sequence_is_made(fake: FakeSequences) -> None:
    kernel = fake.made
    good = kernel.step(1, 32, A, B, 1)
    for step, error, code in [
        (kernel.step(1, 32, A, B), ArgumentError, "launch-argument-count"),
        (kernel.step(1, 32, A, B, -1), ArgumentError, "launch-argument-range"),
        (kernel.step(0, 32, A, B, 1), LaunchError, "launch-config"),
        (kernel.step(3, 32, A, B, 1, cluster=2), LaunchError, "launch-config"),
        (kernel.step((3, 50), 32, A, B, 1, cooperative=True), LaunchError, "launch-failed"),
    ]:
        with raises(error, code, "launch 2 of 3"):
            jitlto.sequence(None, [good, step, good])


def test_every_slot_needs_an_argument_and_every_argument_a_slot(fake: FakeSequences) -> None:
    step = fake.made.step(1, 32, Slot("dataset"), B, 1)
    with raises(ArgumentError, "launch-argument-slot", where="slot 'dataset'", hint="dataset="):
        jitlto.sequence(None, [step])
    with raises(ArgumentError, "launch-argument-slot", "'datset'", hint="'dataset'"):
        jitlto.sequence(None, [step], dataset=A)(datset=B)
    with raises(ArgumentError, "launch-argument-slot", "'n'"):
        jitlto.sequence(None, [step], dataset=A, n=1)


@pytest.mark.parametrize("capturing", [False, True])
def test_a_launch_that_the_driver_rejects_is_named(fake: FakeSequences, capturing: bool) -> None:
    kernel = fake.made
    run_all = jitlto.sequence(
        None,
        [kernel.step(1, 32, A, B, 1), kernel.step(5, 2048, A, B, 2, shared_memory=16), kernel.step(1, 32, A, B, 3)],
    )
    fake.driver.capturing = capturing
    for _ in range(2):
        with raises(
            LaunchError, "launch-failed", "INVALID_VALUE", "2048", "16 bytes", where="launch 2 of 3, test/kern"
        ):
            run_all()
        assert [n for *_, n in _values(fake)] == [1]


@pytest.mark.parametrize(
    "function",
    ["cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiate", "cuGraphLaunch", "cuGraphExecKernelNodeSetParams"],
)
def test_without_a_graph_the_launches_are_issued_one_by_one(
    fake: FakeSequences, function: str, caplog: pytest.LogCaptureFixture
) -> None:
    run_all = _make(fake)
    fake.driver.failing.add(function)
    with caplog.at_level(logging.WARNING, "jitlto.launch"):
        run_all()
        run_all(x=C)
    was_graph = function == "cuGraphExecKernelNodeSetParams"
    assert [run.in_graph for run in fake.driver.runs] == [was_graph] * 3 + [False] * 3
    assert _values(fake)[3:] == [(0x3000, 0x2000, 7), (0x1000, 0x2000, 8), (0x3000, 0x2000, 9)]
    assert len(caplog.records) == 1
    assert "CUDA_ERROR_INVALID_VALUE" in caplog.text


def test_a_thread_without_a_context_gets_one(fake: FakeSequences, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "ensure_context", fake.driver.failing.clear)
    for function in ("cuGraphCreate", "cuGraphLaunch", "cuStreamIsCapturing"):
        run_all = _make(fake)
        fake.driver.failing.add(function)
        run_all()
        assert [run.in_graph for run in fake.driver.take()] == [function != "cuStreamIsCapturing"] * 3
        run_all(x=C)
        assert [run.in_graph for run in fake.driver.take()] == [True] * 3


def test_what_is_no_stream_is_refused(fake: FakeSequences) -> None:
    with raises(LaunchError, "launch-failed", "str"):
        jitlto.sequence("text", [])


def test_a_sequence_is_refused_after_a_fork(fake: FakeSequences, monkeypatch: pytest.MonkeyPatch) -> None:
    run_all = _make(fake)
    monkeypatch.setattr(device, "is_forked", True)
    with raises(NoDeviceError, "no-device-forked"):
        run_all()
    assert not fake.driver.runs


# --- lifetimes ---


def test_a_sequence_keeps_its_stream_and_present_arguments_and_frees_what_it_made(fake: FakeSequences) -> None:
    kernel = fake.made
    stream, first, second, fixed = StreamStandIn(), DeviceArray(16), DeviceArray(32), DeviceArray(48)
    kept = [weakref.ref(each) for each in (stream, first, second, fixed)]
    run_all = jitlto.sequence(stream, [kernel.step(1, 32, Slot("x"), fixed, 1)], x=first)
    run_all()
    del stream, first, fixed
    assert [each() is not None for each in kept] == [True] * 4
    run_all(x=second)
    del second
    gc.collect()
    assert [each() is not None for each in kept] == [True, False, True, True]
    run_all()
    assert _values(fake) == [(16, 48, 1), (32, 48, 1), (32, 48, 1)]
    gc.disable()
    try:
        del run_all
        assert fake.driver.destroyed == 2
        assert [each() is None for each in kept] == [True] * 4
    finally:
        gc.enable()
