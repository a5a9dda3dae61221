"""Arrays and streams of several libraries, mixed at will: every way of a launch passes what the converters return."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jitlto.base.errors import ArgumentError, JitltoError
from jitlto.launch.arguments import make_converter
from tests.support import launch_core
from tests.support.arrays import (
    STREAMS,
    TORCH,
    CupyArray,
    JaxArray,
    NumbaArray,
    TorchStream,
    TorchTensor,
)
from tests.support.errors import raises
from tests.support.launchers import FakeDriver, parameter

KINDS: list[Callable[[], Any]] = [CupyArray, TorchTensor, NumbaArray, JaxArray]
POINTERS = [
    "float const*",
    "float*",
    "float2 const*",
    "double const*",
    "void const*",
    "__nv_bfloat16 const*",
    "mine::point const*",
]

SIZES, ADDRESSES = st.sampled_from([0, 1, 4]), st.sampled_from([0, 4096, 1 << 47])
TYPESTRS = st.sampled_from(["<f4", "<f8", "<i4", ">f4"])
ARRAYS = st.one_of(
    st.builds(CupyArray, TYPESTRS, contiguous=st.booleans(), size=SIZES, address=ADDRESSES),
    st.builds(NumbaArray, TYPESTRS, contiguous=st.booleans(), size=SIZES, address=ADDRESSES),
    st.builds(JaxArray, TYPESTRS | st.just("<V2"), size=SIZES, address=ADDRESSES, deleted=st.booleans()),
    st.builds(
        TorchTensor,
        st.sampled_from(list(vars(TORCH).values())),
        contiguous=st.booleans(),
        size=SIZES,
        address=ADDRESSES,
        cuda=st.booleans(),
        gradient=st.booleans(),
        storage=st.booleans(),
        conjugate=st.booleans(),
        negative=st.booleans(),
    ),
)
VALUES = ARRAYS | st.sampled_from(KINDS).map(lambda kind: kind()) | st.none() | st.just(0) | st.text(max_size=1)

pytestmark = pytest.mark.usefixtures("torch_stand_in")


@pytest.fixture(params=["python", "compiled"])
def fake(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> FakeDriver:
    """The driver below launches in Python, and by the compiled core."""
    return FakeDriver(monkeypatch, launch_core.core() if request.param == "compiled" else None)


def outcome(work: Callable[[], Any]) -> Any:
    """A result, or the error without its causes."""
    try:
        return work()
    except JitltoError as error:
        return type(error), error.code, str(error)
    except Exception as error:  # noqa: BLE001 - whatever a library raises
        return type(error), str(error)


def launched(fake: FakeDriver, way: Callable[..., None], *args: Any, stream: Any = None) -> Any:
    """What reaches the driver, or the error."""
    fake.launches.clear()

    def work() -> list[Any]:
        way(stream or fake.stream, 1, 32, *args)
        [(_, _, *values)] = fake.launches
        return values

    return outcome(work)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(
    types=st.lists(st.sampled_from(POINTERS), min_size=1, max_size=3).map(tuple),
    calls=st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=1, max_size=6),
)
def test_whatever_was_launched_before_the_arguments_are_those_of_the_converters(
    fake: FakeDriver, types: tuple[str, ...], calls: list[list[Any]]
) -> None:
    launcher = fake.launcher(*types)
    converters = [make_converter(parameter(type_, f"a{n}")) for n, type_ in enumerate(types)]
    for call in calls:
        args = call[: len(types)]
        expected = outcome(
            lambda args=args: [int.from_bytes(c(a), "little") for c, a in zip(converters, args, strict=True)]  # type: ignore[misc]
        )
        assert launched(fake, launcher, *args) == expected


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_arrays_of_any_libraries_mix_and_the_core_reads_those_it_knows_itself(
    fake: FakeDriver, first: Callable[[], Any], second: Callable[[], Any]
) -> None:
    launcher = fake.launcher("float const*", "float const*", "int")
    arrays = [first(), second()]
    for _ in range(4):
        launcher(fake.stream, 1, 32, *arrays, 3)
        launcher(fake.stream, 1, 32, *arrays[::-1], 3)
    before = [array.reads for array in arrays]
    for one, other in itertools.product(arrays, arrays):
        launcher(fake.stream, 1, 32, one, other, 3)
        assert fake.launches[-1][2:] == (4096, 4096, 3)
    known = (CupyArray, TorchTensor) if fake.core else ()
    assert [array.reads - count for array, count in zip(arrays, before, strict=True)] == [
        0 if isinstance(array, known) else 4 for array in arrays
    ]


def test_a_tensor_that_changed_is_checked_again(fake: FakeDriver) -> None:
    launcher = fake.launcher("float const*")
    tensor = TorchTensor()
    for _ in range(4):
        launcher(fake.stream, 1, 32, tensor)
    for name, value, code in [
        ("is_cuda", False, "host-memory"),
        ("dtype", TORCH.float64, "dtype"),
        ("_contiguous", False, "not-contiguous"),
    ]:
        before = getattr(tensor, name)
        setattr(tensor, name, value)
        with raises(ArgumentError, f"launch-argument-{code}", "a0"):
            launcher(fake.stream, 1, 32, tensor)
        setattr(tensor, name, before)
    tensor._address = 8192
    launcher(fake.stream, 1, 32, tensor)
    assert fake.launches[-1][2:] == (8192,)


def test_a_type_that_only_looks_like_a_librarys_is_read_by_its_interface(fake: FakeDriver) -> None:
    class Lying(CupyArray):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return super().__cuda_array_interface__ | {"data": (77, False)}

    Lying.__module__, Lying.__name__ = "cupy", "ndarray"
    launcher = fake.launcher("float*")
    for _ in range(5):
        launcher(fake.stream, 1, 32, Lying())
    assert {values for _, _, *values in map(tuple, fake.launches) for values in [tuple(values)]} == {(77,)}


def test_an_array_without_the_interface_says_nothing_of_others_of_its_type(fake: FakeDriver) -> None:
    class ByDLPack(JaxArray):
        """Shows some of its arrays by DLPack only; here, by a handle."""

        handle, is_device_accessible = 4096, True

    launcher = fake.launcher("__nv_bfloat16 const*", "float const*")
    small, usual = ByDLPack("<V2"), ByDLPack("<f4")
    for _ in range(4):
        launcher(fake.stream, 1, 32, small, None)
    for _ in range(3):
        reads = usual.reads
        launcher(fake.stream, 1, 32, small, usual)
        assert fake.launches[-1][2:] == (4096, 4096)
    assert usual.reads - reads == 1


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("late", [False, True])
def test_a_stream_of_any_library_is_its_handle_in_every_launch(
    fake: FakeDriver, kind: Callable[[int], Any], late: bool
) -> None:
    launcher = fake.launcher()
    if late:
        for _ in range(3):
            launcher(None, 1, 32)
    for handle in (77, 78, 77, 0, 1):
        for _ in range(3):
            launcher(kind(handle), 1, 32)  # a new object each time
            stream, _ = fake.launches[-1]
            assert stream is fake.stream if handle == 0 else stream.handle == handle


def test_a_stream_whose_handle_changes_is_read_anew(fake: FakeDriver) -> None:
    launcher = fake.launcher()
    for kind in STREAMS:
        if kind is TorchStream:  # which cannot be changed
            continue
        stream = kind(5)
        for handle in (5, 6, 5):
            vars(stream).update(vars(kind(handle)))
            launcher(stream, 1, 32)
            assert fake.launches[-1][0].handle == handle


def test_a_graph_builder_is_passed_on_in_every_launch(fake: FakeDriver) -> None:
    builder = type("GraphBuilder", (STREAMS[0],), {"__module__": "cuda.core.graph._graph_builder"})(5)
    launcher = fake.launcher()
    for _ in range(5):
        launcher(builder, 1, 32)
    assert [stream.handle for stream, _ in fake.launches] == [5] * 5
