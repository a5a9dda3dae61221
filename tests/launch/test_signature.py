"""The compiled core passes what is usual to the driver itself, and leaves the rest to the Python way."""

import gc
import sys
from typing import Any

import numpy as np
import pytest

from jitlto.base.errors import ArgumentError, LaunchError
from jitlto.launch import signature
from jitlto.launch.launcher import Launcher
from tests.support import arrays, launch_core
from tests.support.arrays import CupyArray, NumbaStream
from tests.support.errors import raises
from tests.support.launchers import INVALID, OK, FakeDriver


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return FakeDriver(monkeypatch, launch_core.core())


def warm(fake: FakeDriver, *types: str, **how: Any) -> Launcher:
    """A launcher that has launched twice, so that the core launches from now on."""
    launcher = fake.launcher(*types)
    for _ in range(2):
        launcher(fake.stream, 1, 32, *[None if "*" in type_ else 0 for type_ in types], **how)
    fake.launches.clear()
    return launcher


def by_core(fake: FakeDriver) -> bool:
    """Whether the core has launched the last one."""
    return bool(fake.launches[-1][1].by_core)


@pytest.mark.usefixtures("torch_stand_in")
def test_the_usual_arguments_do_not_need_the_python_way(fake: FakeDriver) -> None:
    types = ("const float*", "float*", "void*", "int", "unsigned long long", "bool", "float", "double", "__half")
    launcher = warm(fake, *types)
    tensor = arrays.TorchTensor(address=0x7000)
    launcher(fake.stream, (2, 3), 32, CupyArray(), tensor, None, -5, (1 << 64) - 1, True, 0.1, 0.1, 0.5)
    [(stream, config, *values)] = fake.launches
    assert (stream, config.grid) == (fake.stream, (2, 3, 1))
    assert values == [4096, 0x7000, 0, -5, (1 << 64) - 1, True, np.float32(0.1), 0.1, 0.5]
    assert by_core(fake)


def test_structures_and_enums_do_not_need_the_python_way(fake: FakeDriver) -> None:
    launcher = fake.launcher("mine::point", "enum mine::color", "float4")
    vector = np.arange(1, 5, dtype=np.float32)
    for _ in range(4):
        launcher(fake.stream, 1, 32, b"12345678", 3, vector)
    assert fake.launches[-1][2:] == (b"12345678", (3).to_bytes(8, "little"), vector.tobytes())
    assert by_core(fake)


def test_tensors_of_pytorch_are_read_by_functions_for_c(fake: FakeDriver, torch_stand_in: list[object]) -> None:
    launcher = fake.launcher("float const*", "void*", "__nv_bfloat16*")
    floats, brains = arrays.TorchTensor(), arrays.TorchTensor(arrays.TORCH.bfloat16, address=8192)
    for _ in range(4):
        launcher(fake.stream, 1, 32, floats, brains, brains)
    reads = floats.reads + brains.reads
    torch_stand_in.clear()
    launcher(fake.stream, 1, 32, floats, floats, brains)
    assert fake.launches[-1][2:] == (4096, 4096, 8192)
    assert torch_stand_in == [floats, floats, brains]
    assert floats.reads + brains.reads == reads
    assert by_core(fake)
    for wrong in (brains, arrays.TorchTensor(cuda=False)):
        with pytest.raises(ArgumentError):
            launcher(fake.stream, 1, 32, wrong, None, None)
    launcher(fake.stream, 1, 32, arrays.TorchTensor(gradient=True), None, None)
    assert fake.launches[-1][2:] == (4096, 0, 0)
    launcher(fake.stream, 1, 32, arrays.TorchTensor(size=0), None, None)
    assert fake.launches[-1][2:] == (0, 0, 0)


@pytest.mark.usefixtures("torch_stand_in")
@pytest.mark.parametrize("api", [arrays.exchange_api(None), arrays.exchange_api(arrays.describe, 2), object(), None])
def test_tensors_without_the_functions_are_read_in_python(fake: FakeDriver, api: object) -> None:
    class Tensor(arrays.TorchTensor):
        __dlpack_c_exchange_api__ = api

    Tensor.__module__, Tensor.__name__ = "torch", "Tensor"
    launcher = fake.launcher("float*")
    for _ in range(3):
        launcher(fake.stream, 1, 32, Tensor())
    assert fake.launches[-1][2:] == (4096,)


@pytest.mark.usefixtures("torch_stand_in")
@pytest.mark.parametrize(
    ("how", "address"),
    [
        ({"shape": (4, 8)}, 4096),
        ({"shape": ()}, 4096),
        ({"shape": (1, 4), "strides": (99, 1)}, 4096),
        ({"shape": (3, 0), "strides": (5, 5)}, 0),
        ({"shape": (2, 3), "strides": (1, 2)}, None),
        ({"contiguous": False}, None),
    ],
)
def test_a_tensor_has_to_be_contiguous(fake: FakeDriver, how: dict[str, Any], address: int | None) -> None:
    launcher = warm(fake, "float*")
    for _ in range(2):
        fake.launches.clear()
        if address is None:
            with raises(ArgumentError, "launch-argument-not-contiguous"):
                launcher(fake.stream, 1, 32, arrays.TorchTensor(**how))
        else:
            launcher(fake.stream, 1, 32, arrays.TorchTensor(**how))
            assert fake.launches[0][2] == address
            assert by_core(fake)


@pytest.mark.usefixtures("torch_stand_in")
@pytest.mark.parametrize(
    "wrong",
    [
        arrays.TorchTensor(cuda=False),
        arrays.TorchTensor(arrays.TORCH.float8),
        arrays.TorchTensor(storage=False),
    ],
)
def test_tensors_that_do_not_fit_are_refused_in_python(fake: FakeDriver, wrong: arrays.TorchTensor) -> None:
    launcher = warm(fake, "float*")
    launcher(fake.stream, 1, 32, arrays.TorchTensor())
    with pytest.raises(ArgumentError):
        launcher(fake.stream, 1, 32, wrong)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_cupys_own_arrays_are_read_as_by_its_attributes(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = pytest.importorskip("cupy")
    memory = cupy.cuda.UnownedMemory(0x7F00_0000_0000, 4096, None, 0)
    launcher = warm(fake, "void const*", "float const*")
    monkeypatch.setattr(signature, "_learn_array", lambda _: True)  # whose interface asks the driver
    signature.make_signature.cache_clear()
    launcher._quick = signature.core_signature(tuple(launcher.signature))
    for offset in (16, 0, 1024, 4096):
        plain = cupy.ndarray((6, 4), np.float32, cupy.cuda.MemoryPointer(memory, offset))
        for array in (plain, plain[2:], plain.reshape(24), plain[:0]):
            launcher(fake.stream, 1, 32, array, array)
            assert fake.launches[-1][2:] == (array.data.ptr, array.data.ptr)
            assert by_core(fake)


@pytest.mark.usefixtures("torch_stand_in")
@pytest.mark.parametrize(
    ("type_", "wrong", "how"),
    [
        ("float2*", {"conjugate": True}, {"dtype": arrays.TORCH.complex64}),
        ("float*", {"negative": True}, {"size": 1}),
    ],
)
def test_a_conjugate_or_negative_that_is_not_computed_is_refused(
    fake: FakeDriver, type_: str, wrong: dict[str, bool], how: dict[str, Any]
) -> None:
    launcher = warm(fake, type_)
    launcher(fake.stream, 1, 32, arrays.TorchTensor(**how))
    assert fake.launches[0][2] == 4096
    assert by_core(fake)
    with raises(ArgumentError, "launch-argument-conjugate"):
        launcher(fake.stream, 1, 32, arrays.TorchTensor(**how, **wrong))


@pytest.mark.usefixtures("torch_stand_in")
@pytest.mark.parametrize("kind", [arrays.TorchTensor, arrays.CupyArray, arrays.NumbaArray, arrays.JaxArray])
def test_an_array_without_memory_is_refused_unless_it_is_empty(fake: FakeDriver, kind: type) -> None:
    launcher = warm(fake, "const float*")
    for _ in range(2):
        launcher(fake.stream, 1, 32, kind())
        launcher(fake.stream, 1, 32, kind(size=0, address=0))
        assert [launch[2] for launch in fake.launches] == [4096, 0]
        fake.launches.clear()
        with raises(ArgumentError, "launch-argument-no-memory"):
            launcher(fake.stream, 1, 32, kind(address=0))


# --- streams ---


def make_stream(library: str, **attributes: Any) -> Any:
    stream = type("Stream", (), {"__module__": f"{library}.cuda"})()
    vars(stream).update(attributes)
    return stream


def test_a_handle_is_a_stream(fake: FakeDriver) -> None:
    warm(fake)(77, 1, 32)
    assert fake.launches[0][0].handle == 77
    assert by_core(fake)


@pytest.mark.parametrize("stream", [None, 0, make_stream("cupy", ptr=0), make_stream("torch", cuda_stream=0)])
def test_handle_zero_is_the_default_stream(fake: FakeDriver, stream: Any) -> None:
    warm(fake)(stream, 1, 32)
    assert fake.launches[0][0] is fake.stream
    assert by_core(fake)


def test_other_streams_are_asked_by_the_protocol(fake: FakeDriver) -> None:
    launcher = warm(fake)
    for stream, by in ((NumbaStream(5), True), (make_stream("numba", handle=5), False)):
        launcher(stream, 1, 32)
        assert fake.launches[-1][0].handle == 5
        assert by_core(fake) is by


# --- launch configurations ---


def test_shared_memory_goes_the_python_way_until_it_is_granted(fake: FakeDriver) -> None:
    launcher = warm(fake)
    for size in (0, 512, 512, 100, 600):
        launcher(fake.stream, 1, 32, shared_memory=size)
    assert [config.shared_memory for _, config in fake.launches] == [0, 512, 512, 100, 600]
    assert [config.by_core for _, config in fake.launches] == [True, False, True, True, False]


def test_launch_attributes_go_the_python_way(fake: FakeDriver) -> None:
    launcher = warm(fake)
    launcher(fake.stream, 1, 32, cooperative=False, programmatic=False, cluster=None)
    assert by_core(fake)
    launcher(fake.stream, 1, 32, programmatic=True)
    assert not by_core(fake)
    assert fake.launches[-1][1].attributes == {"CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"}


def test_all_arguments_may_be_given_by_name(fake: FakeDriver) -> None:
    warm(fake)(block=64, stream=fake.stream, grid=[2, 2])
    [(stream, config)] = fake.launches
    assert (stream, config.grid, config.block) == (fake.stream, (2, 2, 1), (64, 1, 1))
    with pytest.raises(TypeError, match="blocks"):
        warm(fake)(fake.stream, 1, 64, blocks=3)


# --- errors, references, threads ---


def test_what_is_no_error_is_passed_on(fake: FakeDriver) -> None:
    class Interrupting:
        def __index__(self) -> int:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        warm(fake, "int")(fake.stream, 1, 32, Interrupting())


def test_an_error_of_the_driver_is_found_by_the_python_way(fake: FakeDriver) -> None:
    launcher = warm(fake)
    fake.status = INVALID
    with raises(LaunchError, "launch-failed", "CUDA_ERROR_INVALID_VALUE"):
        launcher(fake.stream, 1, 32)
    fake.status = OK
    launcher(fake.stream, 1, 32)
    assert len(fake.launches) == 1


@pytest.mark.parametrize("way", ["done", "otherwise", "refused"])
def test_launches_keep_no_references(fake: FakeDriver, way: str) -> None:
    launcher = warm(fake, "float*", "int")
    array: Any = {"done": CupyArray(), "otherwise": arrays.NumbaArray(), "refused": CupyArray("<f8")}[way]
    number, grid = 123456, (7, 8)

    def run() -> None:
        try:
            launcher(fake.stream, grid, 32, array, number)
        except ArgumentError:
            assert way == "refused"

    run()
    gc.collect()
    objects = (array, number, grid, fake.stream, None, launcher)
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(50):
        run()
        fake.launches.clear()
    gc.collect()
    after = [sys.getrefcount(each) for each in objects]
    # None is immortal from Python 3.12 on, and before that others count it too.
    assert all(abs(a - b) < 40 for a, b in zip(after, before, strict=True)), (before, after)
