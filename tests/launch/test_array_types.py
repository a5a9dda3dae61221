"""What is read of the libraries' own arrays and streams, as far as they can be made without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jitlto.base.errors import ArgumentError
from jitlto.base.types import find_scalar
from jitlto.launch import array_types
from jitlto.launch.arguments import make_converter
from jitlto.launch.array_types import element_typestr, find_array_type
from jitlto.launch.streams import handle_code
from tests.support.arrays import CupyArray, JaxArray, NumbaArray, torch_tensors
from tests.support.launchers import FakeDriver, parameter

NAMES = ["bool", "char", "unsigned char", "short", "int", "unsigned", "int64_t", "size_t", "__half", "float", "double",
         "float2", "double2", "__nv_bfloat16"]  # fmt: skip


def test_the_table_names_types_and_not_what_derives_from_them() -> None:
    assert find_array_type(CupyArray) is not None
    assert find_array_type(type("Masked", (CupyArray,), {})) is None
    assert find_array_type(JaxArray) is None
    assert find_array_type(np.ndarray) is None


def test_an_array_that_the_converter_reads_otherwise_is_not_read_cheaply() -> None:
    how = find_array_type(NumbaArray)
    assert how is not None
    assert how.agrees(NumbaArray(address=8), 8) is True
    assert how.agrees(NumbaArray(address=8), 9) is False
    assert how.agrees(NumbaArray(contiguous=False), 8) is None
    assert how.agrees(SimpleNamespace(), 8) is False


@pytest.mark.parametrize("name", NAMES)
def test_the_type_string_of_an_element_is_that_of_the_converter(name: str) -> None:
    known = find_scalar(name)
    assert known is not None
    array = JaxArray(element_typestr(known))
    interface = {"shape": (4,), "typestr": element_typestr(known), "data": (4096, False), "version": 3}
    array.__class__ = type("Shown", (JaxArray,), {"__cuda_array_interface__": interface})
    assert make_converter(parameter(f"{name}*"))(array) == 4096


@pytest.mark.slow
def test_pytorchs_tensors_have_what_is_read() -> None:
    torch = pytest.importorskip("torch")
    plain = torch.arange(24, dtype=torch.float32)
    for kind in (torch.Tensor, torch.nn.Parameter):
        how = find_array_type(kind)
        assert how is not None
        assert how.read(plain) is None  # it is in host memory
        for name in NAMES:
            known = find_scalar(name)
            assert known is not None
            found = how.find_dtype(known)
            assert isinstance(found, torch.dtype)
            assert found.itemsize == known.size
    for tensor in (plain, plain[::2], plain.reshape(4, 6).T, plain.reshape(24, 1).T, plain.expand(3, 24), plain[3:3]):
        assert tensor.is_contiguous() == tensor.numpy().flags.c_contiguous
    assert plain[3:].data_ptr() == plain.data_ptr() + 12
    assert plain[3:3].data_ptr() == 0  # as in the array interface
    assert find_array_type(type("Own", (torch.Tensor,), {})) is None


@pytest.mark.slow
def test_pytorchs_classes_tell_the_dtype_and_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    how = find_array_type(torch.Tensor)
    assert how is not None
    plain = torch.arange(24, dtype=torch.float32)
    checks = {name: how.find_check(find_scalar(name)) for name in NAMES}  # type: ignore[arg-type]
    assert [name for name, check in checks.items() if check is None] == ["unsigned", "size_t", "float2", "double2"]
    assert not any(check(plain) for check in checks.values() if check is not None)  # it is in host memory
    in_host_memory_too(monkeypatch, torch)
    check = how.find_check(find_scalar("float"))  # type: ignore[arg-type]
    assert check is not None
    others = plain.double(), plain.int(), plain.to_sparse(), torch.empty(4, device="meta"), 1.0, None
    assert check(plain)
    assert not any(map(check, others))


def in_host_memory_too(monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    """Have tensors in host memory taken for tensors on a GPU."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True), raising=False)
    for name in array_types._TORCH_CLASSES.values():
        monkeypatch.setattr(torch.cuda, name, getattr(torch, name))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_cupys_streams_are_read_by_their_attribute() -> None:
    cuda = pytest.importorskip("cupy").cuda
    assert handle_code(cuda.ExternalStream(77, 0)) == "{0}.ptr"


def launched(fake: FakeDriver, launcher: Any, argument: Any) -> list[Any]:
    """What reaches the driver."""
    fake.launches.clear()
    launcher(fake.stream, 1, 32, argument)
    [(_, _, *values)] = fake.launches
    return values


def outcome(work: Callable[[], Any]) -> Any:
    """A result, or the error."""
    try:
        return work()
    except ArgumentError as error:
        return error.code, str(error)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_pytorchs_own_tensors_are_taken_or_refused_as_by_the_converters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tensors in host memory that say that they are on a GPU."""
    torch = pytest.importorskip("torch")
    in_host_memory_too(monkeypatch, torch)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    fake, tensors = FakeDriver(monkeypatch), torch_tensors("cpu")
    taken = 0
    for type_ in ("float const*", "float*", "void*", "__nv_bfloat16*", "bool*", "int const*", "mine::point*"):
        launcher, convert = fake.launcher(type_), make_converter(parameter(type_, "a0"))
        for tensor in [*tensors, *tensors, *tensors]:
            expected = outcome(lambda c=convert, a=tensor: [c(a)])  # type: ignore[misc]
            assert outcome(lambda call=launcher, a=tensor: launched(fake, call, a)) == expected  # type: ignore[misc]
            taken += isinstance(expected, list)
    assert taken > 100
