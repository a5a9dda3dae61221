"""Tensors of PyTorch as the compiled core reads them: by what DLPack offers programs in C."""

import contextlib
import ctypes
from typing import Any

import pytest

from jitlto.base.errors import ArgumentError
from jitlto.base.types import DTYPES, Parameter
from jitlto.launch.arguments import Pointer
from tests.support import arrays, exercise_core, launch_core
from tests.support.arrays import DLTensor

_DTYPES = set(DTYPES.values())  # PyTorch's names


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
    if tensor.is_conj() or tensor.is_neg() or str(tensor.dtype).removeprefix("torch.") not in _DTYPES:
        return None
    return 0 if tensor.numel() == 0 else tensor.data_ptr() or None


def test_the_core_passes_what_tensors_say_themselves() -> None:
    torch, core = pytest.importorskip("torch"), launch_core.core()
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip(f"PyTorch {torch.__version__} has no functions for C")
    describe, sent = arrays.describe_of(torch.Tensor), []  # type: arrays.Describe, list[int]

    def on_device(tensor: Any, out: DLTensor) -> None:
        describe(tensor, out)
        out.device_type = {1: 2}.get(out.device_type, 1)  # memory of the host stands for a device's

    api = arrays.exchange_api(on_device)

    def launch(config: int, kernel: int, values: int, extra: Any) -> int:
        sent.append(ctypes.c_uint64.from_address(extra[1]).value)
        return 0

    native = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3, ctypes.POINTER(ctypes.c_void_p))(launch)
    address = ctypes.cast(native, ctypes.c_void_p).value
    for code, bits in ((2, 32), (0, 0)):  # float*, and void*
        rows = ((core.POINTER, 8, 8, False, code, bits, None, None, exercise_core.otherwise),)
        learners = (lambda _: api, lambda _: None)
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
        if expected is not None or str(tensor.dtype).removeprefix("torch.") in _DTYPES:
            assert found == expected, (tensor.dtype, tensor.shape, type_)
