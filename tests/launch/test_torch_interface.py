"""PyTorch's own functions for C are found where its objects have the layout that they need."""

import contextlib
import ctypes
from typing import Any

import pytest

from jitlto.base.errors import ArgumentError
from jitlto.base.types import Parameter
from jitlto.launch import torch_interface
from jitlto.launch.arguments import Pointer
from jitlto.launch.torch_interface import TorchInterface
from tests.support import arrays, exercise_core, launch_core
from tests.support.arrays import TorchLibrary, TorchTensor


class Older(arrays.TorchObject):
    """A tensor with a flag before the pointer, as before PyTorch 2.10."""

    __slots__ = ("tensor",)

    def __init__(self) -> None:
        self._tensor, self.tensor = None, object()

    @property
    def _cdata(self) -> int:
        return id(self.tensor)


class Elsewhere(TorchTensor):
    """A tensor that has the pointer in another place."""

    @property
    def _cdata(self) -> int:
        return id(self)


class Small:
    """An object with nothing behind its head, of which nothing may be read there."""

    __slots__ = ()

    @property
    def _cdata(self) -> int:
        return 0


@pytest.mark.parametrize(("tensor", "behind"), [(TorchTensor(), 0), (Older(), 8)])
def test_the_tensor_is_where_its_pointer_is(torch_stand_in: TorchLibrary, tensor: Any, behind: int) -> None:
    described = torch_interface.describe(tensor)
    assert described is not None
    assert TorchInterface.from_buffer_copy(described).offset == object.__basicsize__ + behind


@pytest.mark.usefixtures("torch_stand_in")
@pytest.mark.parametrize("tensor", [Elsewhere(), Small(), object()])
def test_another_layout_is_not_read(tensor: Any) -> None:
    assert torch_interface.describe(tensor) is None


@pytest.mark.parametrize("missing", ["get_layout", "dtype_uint64", "layout_strided"])
def test_a_pytorch_without_a_function_is_not_read(torch_stand_in: TorchLibrary, missing: str) -> None:
    del torch_stand_in._functions[missing]
    assert torch_interface.describe(TorchTensor()) is None


def test_a_number_of_a_dtype_beyond_the_table_is_not_kept(torch_stand_in: TorchLibrary) -> None:
    torch_stand_in._functions["dtype_float64"] = lambda: 64
    assert torch_interface.describe(TorchTensor()) is None


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "uint8", "complex64", "bool"])
def test_pytorch_is_read(name: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(6, dtype=getattr(torch, name))[2:]
    described = torch_interface.describe(tensor)
    assert described is not None
    found = TorchInterface.from_buffer_copy(described)

    def read(getter: str, type_: Any, tensor: Any = tensor) -> Any:
        function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(getattr(found, getter))
        value = type_()
        assert function(id(tensor) + found.offset, ctypes.addressof(value)) == 0
        return value.value

    assert read("data_ptr", ctypes.c_void_p) == tensor.data_ptr()
    assert read("dim", ctypes.c_int64) == 1
    assert ctypes.c_int64.from_address(read("sizes", ctypes.c_void_p)).value == 4
    assert ctypes.c_int64.from_address(read("strides", ctypes.c_void_p)).value == 1
    code, bits = found.dtypes[read("dtype", ctypes.c_int32)]
    assert (code, bits) == torch_interface._DTYPES[name]
    assert read("layout", ctypes.c_int32) == found.strided
    assert read("layout", ctypes.c_int32, torch.eye(3).to_sparse()) != found.strided
    assert read("device_type", ctypes.c_int32) != found.cuda
    meta = torch.empty(4, device="meta")
    assert read("device_type", ctypes.c_int32, meta) != found.cuda


def test_the_layout_is_that_of_the_core() -> None:
    core = launch_core.core()
    assert ctypes.sizeof(TorchInterface) == core.TORCH_INTERFACE_SIZE


def odd_tensors(torch: Any) -> list[Any]:
    """Tensors of every kind that may or may not be passed for a pointer."""
    plain = torch.arange(24, dtype=torch.float32)
    negative, gone, wide = torch.complex(plain, plain).conj().imag, plain.clone(), plain.bfloat16()
    for tensor in (gone, wide):
        tensor.untyped_storage().resize_(0)
    return [
        plain, plain[4:], plain[::2], plain.reshape(4, 6), plain.reshape(4, 6).T, plain[3:3], plain[:0], plain[7],
        plain.reshape(24, 1)[:, :1], plain.reshape(1, 24).T, plain.expand(3, 24), torch.zeros(2, 0, 3),
        torch.zeros(1, 5)[:, ::5], plain.double(), plain.half(), plain.bfloat16(), plain.int(), plain.bool(),
        plain.to(torch.uint8), plain.clone().requires_grad_(), torch.nn.Parameter(plain.clone()),
        torch.complex(plain, plain), torch.complex(plain, plain).conj(), plain.to(torch.complex64).imag,
        negative, negative[7], negative[:1], negative[:0], gone, gone[:0], wide, plain.to_sparse(),
        torch.empty(4, device="meta"), plain.to(getattr(torch, "float8_e5m2", torch.float16)),
    ]  # fmt: skip


def expected_address(torch: Any, tensor: Any) -> int | None:
    """The address that the core passes; None where it leaves the tensor to Python."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or not tensor.is_contiguous():
        return None
    if tensor.is_conj() or tensor.is_neg() or str(tensor.dtype).removeprefix("torch.") not in torch_interface._DTYPES:
        return None
    return 0 if tensor.numel() == 0 else tensor.data_ptr() or None


def test_the_core_passes_what_tensors_say_themselves() -> None:
    torch, core = pytest.importorskip("torch"), launch_core.core()
    described = torch_interface.describe(torch.zeros(1))
    assert described is not None
    found, sent = TorchInterface.from_buffer_copy(described), []  # type: TorchInterface, list[int]
    found.cuda = torch_interface.library().aoti_torch_device_type_cpu()  # memory of the host stands for a device's

    def launch(config: int, kernel: int, values: int, extra: Any) -> int:
        sent.append(ctypes.c_uint64.from_address(extra[1]).value)
        return 0

    native = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3, ctypes.POINTER(ctypes.c_void_p))(launch)
    address = ctypes.cast(native, ctypes.c_void_p).value
    for code, bits in ((2, 32), (0, 0)):  # float*, and void*
        rows = ((core.POINTER, 8, 8, False, code, bits, None, None, exercise_core.otherwise),)
        learners = (lambda _: bytes(found), lambda _: None)
        signature = core.make_signature(rows, address, 0, 1, exercise_core.Stream, *learners)
        launcher = exercise_core.new_launcher(core, signature, 0)
        for tensor in odd_tensors(torch):
            sent.clear()
            with contextlib.suppress(exercise_core.OtherwiseError):
                launcher(None, 1, 1, tensor)
            expected = expected_address(torch, tensor) if tensor.dtype == torch.float32 or not bits else None
            assert sent == ([] if expected is None else [expected]), (tensor.dtype, tensor.shape, bits)


@pytest.mark.parametrize("type_", ["float*", "void*"])
def test_the_plain_way_passes_the_same_or_refuses(type_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch, pointer = pytest.importorskip("torch"), Pointer(Parameter("p", type_, 8, 8), type_[:-1])
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    for tensor in odd_tensors(torch):
        expected = expected_address(torch, tensor) if tensor.dtype == torch.float32 or type_ == "void*" else None
        found = None
        with contextlib.suppress(ArgumentError):
            found = pointer._read_tensor(tensor)
        if expected is not None or str(tensor.dtype).removeprefix("torch.") in torch_interface._DTYPES:
            assert found == expected, (tensor.dtype, tensor.shape, type_)
