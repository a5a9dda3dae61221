"""Every way of a launch does the same: the first, those by generated code, and bound ones; with results and errors."""

import ctypes
import gc
import sys
import weakref
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jitlto.base.errors import ArgumentError, JitltoError, LaunchError, NoDeviceError
from jitlto.base.types import Parameter
from jitlto.cuda import device
from jitlto.cuda.device import stream_handle
from jitlto.launch import core as core_module
from jitlto.launch.arguments import make_converter
from jitlto.launch.launcher import Launcher
from jitlto.launch.step import parse_extent
from tests.support import launch_core
from tests.support.arrays import CupyArray, CupyStream, TorchStream
from tests.support.errors import raises
from tests.support.launchers import INVALID, OK, FakeDriver, parameter

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


def ways(fake: FakeDriver, *types: str) -> list[Launcher]:
    """Launchers for the first launch, and for later ones, which the core launches if there is one."""
    later = fake.launcher(*types)
    for _ in range(2):
        later(fake.stream, 1, 32, *[None if "*" in type_ else plain_value(type_) for type_ in types])
    fake.launches.clear()
    return [fake.launcher(*types), later]


def plain_value(type_: str) -> Any:
    return bytes(8) if type_ == "mine::point" else 0


def outcome(fake: FakeDriver, way: Launcher, *args: Any, **how: Any) -> Any:
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


@pytest.mark.slow
@pytest.mark.parametrize("type_", TYPES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(value=VALUES | ARRAYS)
def test_both_ways_pass_what_the_converter_returns(fake: FakeDriver, type_: str, value: Any) -> None:
    if isinstance(value, int | np.integer) and type_.endswith("*"):
        value = 0  # other addresses are for the driver to know
    known = parameter(type_, "a0")
    try:
        expected: Any = make_converter(known)(value)
    except ArgumentError as error:
        expected = type(error), error.code, str(error)
    for way in ways(fake, type_):
        found = outcome(fake, way, value)
        assert (as_bytes(found[0], known) if isinstance(found, list) else found) == expected


def as_bytes(value: Any, known: Parameter) -> bytes:
    """What the kernel read."""
    if isinstance(value, bytes | int):
        return value if isinstance(value, bytes) else value.to_bytes(known.size, "little")
    data: bytes = value.tobytes()
    return data


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


def test_an_error_of_the_driver_is_the_same_error_on_every_path(fake: FakeDriver) -> None:
    prepared = ways(fake, "int")
    for way in prepared:
        fake.status = OK
        way(fake.stream, 2, 64, 1, shared_memory=5)
        fake.status = INVALID
        words = ("CUDA_ERROR_INVALID_VALUE", "grid (2, 1, 1)", "block (64, 1, 1)", "5 bytes")
        with raises(LaunchError, "launch-failed", *words, where="test/kern"):
            way(fake.stream, 2, 64, 1, shared_memory=5)


def test_what_was_launched_before_does_not_matter(fake: FakeDriver) -> None:
    first = fake.launcher("int")
    launchers = (first, fake.make(first.signature))
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
        assert (config.shared_memory, value) == (how.get("shared_memory", 0), number)
        assert launched.handle == stream_handle(stream)


def test_launchers_with_the_same_signature_share_only_code(fake: FakeDriver) -> None:
    first = fake.launcher("int")
    second, other = fake.make(first.signature), fake.launcher("float")
    for launcher in (first, second, first, second, first, second):
        launcher(fake.stream, 1, 32, 1)
    other(fake.stream, 1, 32, 1.5)
    assert [values for _, _, *values in fake.launches] == [[1]] * 6 + [[1.5]]
    assert [config.by_core for _, config, _ in fake.launches] == [False] * 4 + [fake.core is not None] * 2 + [False]
    if fake.core is not None:
        assert first._quick is second._quick
        assert first._kernel != second._kernel


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
    prepared = ways(fake, "int")
    fake.launcher("int")
    if fake.core is not None:
        monkeypatch.setitem(sys.modules, fake.core.__name__, fake.core)
    monkeypatch.setattr(device, "is_used", True)
    core_module._after_fork()
    monkeypatch.setattr(device, "ensure_context", device.raise_forked_error)  # which it does in another process
    for way in prepared:
        with raises(NoDeviceError, "no-device-forked"):
            way(fake.stream, 1, 32, 1)
    assert not fake.launches


def test_a_fork_before_cuda_is_used_changes_nothing(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "is_used", False)
    core_module._after_fork()
    fake.launcher("int")(fake.stream, 1, 32, 1)
    assert len(fake.launches) == 1


def test_an_attribute_that_there_is_not_is_the_same_error_on_every_path(fake: FakeDriver) -> None:
    for way in ways(fake, "int"):
        with pytest.raises(TypeError, match="unexpected keyword argument 'clusters'"):
            way(fake.stream, 1, 32, "not an int", clusters=2)
