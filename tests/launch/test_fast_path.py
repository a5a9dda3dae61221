"""Every way of a launch does the same: the first, those by generated code, and bound ones; with results and errors."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import struct
import weakref
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jitlto.base.errors import ArgumentError, JitltoError, LaunchError, NoDeviceError
from jitlto.base.types import find_scalar
from jitlto.cuda import device
from jitlto.launch import streams
from jitlto.launch.arguments import make_converter
from jitlto.launch.launcher import Launcher, parse_extent
from jitlto.launch.packed import to_bytes
from jitlto.launch.streams import read_handle
from tests.support import launch_core
from tests.support.arrays import CupyArray, CupyStream, TorchStream
from tests.support.errors import raises
from tests.support.launchers import FakeDriver, Stream, make_launcher, parameter

TYPES = [
    "bool", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned", "long long",
    "unsigned long long", "float", "double", "__half", "__nv_bfloat16", "int64_t", "uint32_t", "float2",
    "float*", "const double*", "void*", "__nv_bfloat16*", "mine::point",
    "enum mine::color",
]  # fmt: skip

VALUES = st.one_of(
    st.integers(-(1 << 65), 1 << 65),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=2),
    st.sampled_from([np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64]).flatmap(
        lambda t: st.integers(0, 100).map(t)
    ),
    st.sampled_from([np.float16, np.float32, np.float64]).flatmap(lambda t: st.floats(width=16).map(t)),
    st.sampled_from([np.bool_(True), np.bool_(False), np.array(3), np.array([1, 2]), 1j]),
    st.sampled_from([(1, 2), bytes(8), bytes(7), (ctypes.c_int * 2)(3, 4), np.zeros((), "i4,i4"), np.void(bytes(8))]),
)


ARRAYS = st.builds(CupyArray, st.sampled_from(["<f4", "<f8", "<i4"]), contiguous=st.booleans())


@pytest.fixture(params=["python", "compiled"])
def fake(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> FakeDriver:
    """The driver below launches in Python, and by the compiled core."""
    return FakeDriver(monkeypatch, launch_core.core() if request.param == "compiled" else None)


@pytest.fixture
def python(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """The driver below launches in Python."""
    return FakeDriver(monkeypatch)


def ways(fake: FakeDriver, *types: str) -> list[Callable[..., None]]:
    """The ways to launch a kernel: the first launch, generated code (new and kept configuration), bound."""

    def warm(times: int) -> Launcher:
        launcher = fake.launcher(*types)
        for _ in range(times):
            with contextlib.suppress(ArgumentError):
                launcher(fake.stream, 1, 32, *[None] * len(types))
        fake.launches.clear()
        return launcher

    return [
        warm(0).__call__,
        warm(2).__call__,
        warm(3).__call__,
        lambda *args, **how: fake.launcher(*types).bind(*args, **how)(),
    ]


def outcome(fake: FakeDriver, way: Callable[..., None], *args: Any, **how: Any) -> Any:
    """What reaches the driver, or the error."""
    fake.launches.clear()
    try:
        way(fake.stream, 1, 32, *args, **how)
    except JitltoError as error:
        assert not fake.launches
        return type(error), error.code, str(error)
    [(stream, config, *values)] = fake.launches
    assert stream is fake.stream
    assert (config.grid, config.block) == ((1, 1, 1), (32, 1, 1))
    return values


def as_bytes(value: Any, type_: str) -> bytes:
    """What the kernel reads: cuda.core sends an int as 8 bytes, a float as a double, a NumPy scalar as it is."""
    known = find_scalar(type_)
    size = 8 if known is None else known.size
    whole = struct.pack("<d", value) if type(value) is float else to_bytes(value, size)
    assert len(whole) == size
    return whole


@pytest.mark.slow
@pytest.mark.parametrize("type_", TYPES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(value=VALUES | ARRAYS)
def test_every_path_passes_what_the_converter_returns(fake: FakeDriver, type_: str, value: Any) -> None:
    if isinstance(value, int | np.integer) and type_.endswith("*"):
        value = 0  # other addresses are for the driver to know
    try:
        expected: Any = as_bytes(make_converter(parameter(type_, "a0"))(value), type_)
    except ArgumentError as error:
        expected = type(error), error.code, str(error)
    for way in ways(fake, type_):
        found = outcome(fake, way, value)
        assert (as_bytes(found[0], type_) if isinstance(found, list) else found) == expected


def test_arguments_keep_their_places(fake: FakeDriver) -> None:
    for way in ways(fake, "int", "double", "bool", "float*", "unsigned"):
        assert outcome(fake, way, -1, 2.5, True, None, 7) == [-1, 2.5, np.bool_(True), 0, 7]


@pytest.mark.parametrize("types", [(), ("int",), ("int", "float")])
def test_a_wrong_number_of_arguments_is_the_same_error_on_every_path(fake: FakeDriver, types: tuple[str, ...]) -> None:
    for count in {0, 1, 2, 3} - {len(types)}:
        errors = {outcome(fake, way, *[1] * count) for way in ways(fake, *types)}
        assert len(errors) == 1
        class_, code, message = errors.pop()
        assert (class_, code) == (ArgumentError, "launch-argument-count")
        assert f"expected {len(types)} arguments, got {count}" in message
        assert message.startswith("test/kern: ")
        if count < len(types):
            assert repr(f"a{count}") in message
    for way in ways(fake, *types):
        assert len(outcome(fake, way, *[1] * len(types))) == len(types)


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"grid": 0}, "launch-config"),
        ({"grid": (1, 2, 3, 4)}, "launch-config"),
        ({"block": True}, "launch-config"),
        ({"block": 1.0}, "launch-config"),
        ({"shared_memory": -1}, "launch-config"),
        ({"grid": 3, "cluster": 2}, "launch-config"),
        ({"cluster": ()}, "launch-config"),
    ],
)
def test_an_invalid_configuration_is_the_same_error_on_every_path(
    fake: FakeDriver, how: dict[str, Any], code: str
) -> None:
    whole = {"grid": 1, "block": 32} | how
    errors = []
    for way in ways(fake, "int"):
        with raises(LaunchError, code) as caught:
            way(
                fake.stream,
                whole["grid"],
                whole["block"],
                1,
                **{n: v for n, v in how.items() if n not in ("grid", "block")},
            )
        errors.append(str(caught.value))
    assert len(set(errors)) == 1


def test_numpys_integers_are_extents_on_every_path(fake: FakeDriver) -> None:
    for way in ways(fake, "int"):
        way(fake.stream, np.int64(5), (np.int32(64), 2), 1)
        _, config, _ = fake.launches[-1]
        assert (config.grid, config.block) == ((5, 1, 1), (64, 2, 1))


def test_an_error_of_the_driver_is_the_same_error_on_every_path(fake: FakeDriver) -> None:
    prepared = ways(fake, "int")
    fake.error = RuntimeError("no")
    for way in prepared:
        with raises(LaunchError, "launch-failed", "no", "grid 2", "block 64", "5 bytes", where="test/kern") as caught:
            way(fake.stream, 2, 64, 1, shared_memory=5)
        assert caught.value.__cause__ is fake.error


def test_the_fast_path_reuses_configurations(python: FakeDriver) -> None:
    launcher = python.launcher("int")
    launcher(python.stream, 1, 32, 1)
    launcher(python.stream, 1, 32, 1)
    python.launches.clear()
    for _ in range(3):
        launcher(python.stream, 1, 32, 1)
        launcher(python.stream, (2, 2), 32, 1, shared_memory=64, cooperative=False)
    plain = [config for _, config, _ in python.launches[::2]]
    other = [config for _, config, _ in python.launches[1::2]]
    assert plain[0] is plain[1] is plain[2]
    assert other[0] is other[1] is other[2]
    assert (other[0].grid, other[0].shmem_size) == ((2, 2, 1), 64)
    assert plain[1].shmem_size == 0


def test_what_was_launched_before_does_not_matter(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    made = type("Stream", (Stream,), {"from_handle": staticmethod(lambda handle: SimpleNamespace(handle=handle))})
    monkeypatch.setattr(streams, "Stream", made)
    monkeypatch.setattr(streams, "streams_by_handle", {})
    first = fake.launcher("int")
    launchers = (first, make_launcher(first.signature, fake.core))
    changing, given, chance = [1, 1], [TorchStream(5), TorchStream(0), CupyStream(6), None], Random(7)  # noqa: S311
    for number in range(300):
        changing[0] = number % 5 + 1
        grid, block = chance.choice([1, 300, (2, 3), changing]), chance.choice([32, (4, 4)])
        how = chance.choice([{}, {}, {"shared_memory": 8}, {"cluster": None}])
        stream = chance.choice(given)
        fake.launches.clear()
        chance.choice(launchers)(stream, grid, block, number, **how)
        [(launched, config, value)] = fake.launches
        assert (config.grid, config.block) == (parse_extent("", grid), parse_extent("", block))
        assert (config.shmem_size, value) == (how.get("shared_memory", 0), number)
        assert launched.handle == ((stream and read_handle(stream)) or fake.stream.handle)


def test_launchers_with_the_same_signature_share_only_code(fake: FakeDriver) -> None:
    first = fake.launcher("int")
    second, other = (make_launcher(each, fake.core) for each in (first.signature, [parameter("float")]))
    assert type(first) is type(second) is not type(other)
    for launcher in (first, second, first, second):
        launcher(fake.stream, 1, 32, 1)
    other(fake.stream, 1, 32, 1.5)
    assert [values for _, _, *values in fake.launches] == [[1]] * 4 + [[1.5]]
    assert first._configs is not second._configs
    assert isinstance(first, Launcher)
    assert type(first).__name__ == "Launcher"
    assert first.__call__.__func__ is second.__call__.__func__ is not other.__call__.__func__


def test_extents_may_be_lists(fake: FakeDriver) -> None:
    launcher = fake.launcher("int")
    for _ in range(3):
        launcher(fake.stream, [2, 3], [32], 1)
    assert {(config.grid, config.block) for _, config, _ in fake.launches} == {((2, 3, 1), (32, 1, 1))}


def test_code_is_generated_at_the_second_launch(python: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    from jitlto.launch import fast_path

    compiled: list[str] = []
    original = fast_path._compile
    monkeypatch.setattr(fast_path, "_compile", lambda source: [compiled.append(source), original(source)][1])
    launcher = python.launcher("int", "float*")
    counts = []
    for number in range(4):
        launcher(python.stream, 1 + number, 32, 1, None)
        counts.append(len(compiled))
    launcher.bind(python.stream, 1, 32, 1, None)()
    assert [*counts, len(compiled)] == [0, 1, 1, 1, 1]


def test_arrays_with_a_cheap_address_are_not_asked_for_their_interface(python: FakeDriver) -> None:
    launcher = python.launcher("const float*", "float*")
    arrays = [CupyArray(), CupyArray()]
    for _ in range(5):
        launcher(python.stream, 1, 32, *arrays)
    # The two launches before there is generated code, for which the second also learns the arrays' type.
    assert [array.reads for array in arrays] == [3, 3]
    assert python.launches[-1][2:] == (4096, 4096)


def test_a_bound_launch_repeats_its_arguments(fake: FakeDriver) -> None:
    array = CupyArray()
    bound = fake.launcher("float*", "double").bind(fake.stream, 3, 32, array, 0.5)
    reads = array.reads
    bound()
    bound()
    assert array.reads == reads
    assert [values for _, _, *values in fake.launches] == [[4096, 0.5]] * 2
    assert bound.arguments == (array, 0.5)  # type: ignore[attr-defined]


def test_a_bound_launch_takes_every_kind_of_argument(fake: FakeDriver) -> None:
    types = ("bool", "short", "float*", "__half", "double", "mine::point", "__nv_bfloat16", "unsigned long long")
    args = (True, -2, None, 0.5, 0.25, bytes(8), 1, 1 << 63)
    bound = fake.launcher(*types).bind(fake.stream, (2, 3), (4, 5, 6), *args)
    assert (type(bound).__name__ == "Bound") is (fake.core is not None)
    bound()
    [(_, config, *values)] = fake.launches
    given = [np.bool_(True), np.int16(-2), 0, np.float16(0.5), 0.25, 0, np.uint16(0x3F80), 1 << 63]
    assert list(map(as_bytes, values, types)) == list(map(as_bytes, given, types))
    assert (config.grid, config.block, config.shmem_size) == ((2, 3, 1), (4, 5, 6), 0)


def test_a_bound_launch_in_a_stream_that_was_closed_is_that_of_the_python_way(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = fake.launcher("int").bind(fake.stream, 1, 32, 5)
    monkeypatch.setattr(Stream, "__cuda_stream__", lambda _: (0, 0))
    fake.streams.clear()  # the driver finds none
    bound()
    assert [stream for stream, *_ in fake.launches] == [fake.stream]


def test_a_bound_launch_takes_no_arguments(fake: FakeDriver) -> None:
    bound: Any = fake.launcher("int").bind(fake.stream, 1, 32, 5)
    for args, how in (((1,), {}), ((), {"grid": 1})):
        with pytest.raises(TypeError):
            bound(*args, **how)
    assert not fake.launches


@pytest.mark.parametrize("launches", [0, 1, 5])
def test_a_launcher_without_references_is_freed(fake: FakeDriver, launches: int) -> None:
    launcher = fake.launcher("int")
    for _ in range(launches):
        launcher(fake.stream, 1, 32, 1)
    freed = weakref.ref(launcher)
    gc.disable()
    try:
        del launcher
        assert freed() is None
    finally:
        gc.enable()


def test_every_path_is_refused_after_a_fork(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    from jitlto.launch import launcher

    prepared = ways(fake, "int")
    bound = fake.launcher("int").bind(fake.stream, 1, 32, 1)
    monkeypatch.setattr(device, "_user", os.getpid())
    launcher.after_fork()
    monkeypatch.setattr(device, "current", device.raise_forked_error)  # which it does in another process
    for way in prepared:
        with raises(NoDeviceError, "no-device-forked"):
            way(fake.stream, 1, 32, 1)
    with raises(NoDeviceError, "no-device-forked"):
        bound()
    assert not fake.launches


def test_a_fork_before_cuda_is_used_changes_nothing(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    from jitlto.launch import launcher

    monkeypatch.setattr(device, "_user", None)
    launcher.after_fork()
    fake.launcher("int")(fake.stream, 1, 32, 1)
    assert len(fake.launches) == 1


def test_the_default_stream_is_the_devices(fake: FakeDriver) -> None:
    for way in ways(fake):
        fake.launches.clear()
        way(None, 1, 32)
        assert fake.launches[0][0] is fake.stream


def test_an_attribute_that_there_is_not_is_the_same_error_on_every_path(fake: FakeDriver) -> None:
    for way in ways(fake, "int"):
        with pytest.raises(TypeError, match="unexpected keyword argument 'clusters'"):
            way(fake.stream, 1, 32, "not an int", clusters=2)
