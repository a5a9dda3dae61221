"""The compiled core on a GPU: the libraries' own arrays and streams, without the Python way, with the right results."""

import contextlib
from pathlib import Path

import numpy as np
import pytest
from cuda.bindings import driver
from cuda.core import Device

from jitlto.base.errors import ArgumentError
from jitlto.launch import signature
from jitlto.launch.launcher import Launcher
from jitlto.launch.step import Packing
from jitlto.runtime.family import KernelFamily
from tests.support import launch_core
from tests.support.families import built
from tests.support.launchers import launcher_class

pytestmark = pytest.mark.gpu

COUNT = 100


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The launches that went, or tried to go, the plain way."""
    found: list[object] = []
    original = Packing.pack
    monkeypatch.setattr(Packing, "pack", lambda *packed: [found.append(packed), original(*packed)][1])
    return found


@pytest.fixture
def twice(mini: KernelFamily, monkeypatch: pytest.MonkeyPatch, plain: list[object]) -> Launcher:
    """A launcher that the core launches: it doubles an array."""
    core = launch_core.core()
    monkeypatch.setattr(signature, "extension", lambda: core)
    known = mini.launcher(data_type="float", op_name="twice")
    made = launcher_class(core)(known.chosen, known.linked, lambda: pytest.fail())
    for _ in range(2):
        made(None, 1, 128, None, 0)
    assert type(made._quick).__name__ == "Signature"
    plain.clear()
    return made


def test_arrays_and_streams_of_cupy(twice: Launcher, plain: list[object]) -> None:
    cp = pytest.importorskip("cupy")
    x = cp.ones(COUNT, cp.float32)
    Device().sync()
    stream = cp.cuda.Stream(non_blocking=True)
    for each in (None, 0, Device().default_stream, stream, cp.cuda.Stream.null):
        twice(each, 1, 128, x, np.uint32(COUNT))
        Device().sync()
    assert x.get().tolist() == [32.0] * COUNT
    assert plain == []
    for wrong in (x.astype(cp.float64), x[::2]):
        with pytest.raises(ArgumentError):
            twice(stream, 1, 128, wrong, COUNT)
    assert len(plain) == 2


def test_tensors_and_streams_of_torch(twice: Launcher, plain: list[object]) -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(COUNT, device="cuda")
    torch.cuda.synchronize()
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        twice(stream, 1, 128, x, COUNT)
        torch.cuda.synchronize()
    twice(None, 1, 128, torch.nn.Parameter(x, requires_grad=False), COUNT)
    twice(None, 1, 128, x[10:].view(2, -1), COUNT - 10)
    twice(None, 1, 128, x.detach().requires_grad_(), COUNT)
    torch.cuda.synchronize()
    assert x.tolist() == [16.0] * 10 + [32.0] * (COUNT - 10)
    assert plain == []
    wrong = {
        "double": x.double(), "strided": x[::2], "host": x.cpu(), "bfloat16": x.bfloat16(),
        "complex": x.to(torch.complex64),
    }  # fmt: skip
    taken = []
    for name, tensor in wrong.items():
        with contextlib.suppress(ArgumentError):
            twice(None, 1, 128, tensor, COUNT)
            taken.append(name)
    assert taken == []


ODD = {
    "family.toml": """
[family]
name = "odd"

[entrypoint.odd]
matrix = "one.json"
template = "odd.cu.jinja"
""",
    "one.json": "{}",
    "odd.cu.jinja": """
struct Pair { short a; char b; };
__global__ void odd(char a, double b, short c, float4 d, bool e, Pair f, float* out, char g, longlong2 h) {
  out[0] = a + b + c + d.x + e + f.a + f.b + g + h.y;
}
""",
}


def test_parameters_lie_where_the_driver_finds_them(tmp_path: Path) -> None:
    kernel, end = built(tmp_path, ODD, "odd").launcher(), 0
    for number, parameter in enumerate(kernel.signature):
        offset = -(-end // parameter.alignment) * parameter.alignment
        end = offset + parameter.size
        status, *found = driver.cuKernelGetParamInfo(int(kernel.kernel.handle), number)
        assert (status, found) == (driver.CUresult.CUDA_SUCCESS, [offset, parameter.size])
