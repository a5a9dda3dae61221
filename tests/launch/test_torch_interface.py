"""PyTorch's own functions for C are found where its objects have the layout that they need."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from jitlto.launch import torch_interface
from jitlto.launch.torch_interface import TorchInterface
from tests.support import arrays, launch_core
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
