"""Calls of operators with functions, on tensors on the CPU: the C++ compiler of the host makes kernel and functions."""

import ctypes
import math
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitlto import Array, Launch, Operator, Output, Seam, torch_fusion, torch_operator
from tests.support.chains import SHIM
from tests.support.lazy import Lazy
from tests.support.operators import CpuBackend
from tests.support.process import output_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")]  # compiled
torch, module = Lazy("torch"), Lazy("jitlto.frameworks.torch_fusion")
operators = Lazy("jitlto.frameworks.torch_operator")
_DEFAULTS = {
    "load.cu": """
float load(const float* x, unsigned row, unsigned column, unsigned n, void*) { return x[row * n + column]; }
""",
    "store.cu": """
void store(float* y, unsigned row, unsigned column, unsigned n, float value, void*) { y[row * n + column] = value; }
""",
}
_LOAD = """
float load(const float*, unsigned row, unsigned column, unsigned n, void* info) {
  float value[1];
  fused::load(row, column, n, value, info);
  return value[0];
}
"""
_STORE = """
void store(float* y, unsigned row, unsigned column, unsigned n, float value, void* info) {
  const float values[1] = {value};
  fused::store(y, row, column, n, values, info);
}
"""
_KERNEL = """
extern "C" void negate(const float* x, float* y, unsigned m, unsigned n, void* before, void* behind) {
  for (unsigned i = 0; i < m; ++i) {
    for (unsigned j = 0; j < n; ++j) store(y, i, j, n, -load(x, i, j, n, before), behind);
  }
}
"""


@dataclass
class HostFamily:
    """A family with one kernel, which the C++ compiler of the host makes; it is its own planner."""

    place: Path
    sources: dict[str, str] = field(default_factory=dict)

    def planner(self, entry: str | None, **chosen: object) -> "HostFamily":
        """Take the place of ``KernelFamily.planner``."""
        return HostFamily(self.place)

    def add_source(self, text: str, name: str) -> None:
        """Take the place of ``Planner.add_source``."""
        self.sources[name] = text

    def plan(self, **how: object) -> "HostFamily":
        """Take the place of ``Planner.plan``; it is its own plan, too."""
        return self

    def launcher(self, **how: object) -> Callable[..., None]:
        """Take the place of ``KernelFamily.launcher``."""
        return self.load(self)

    def load(self, plan: "HostFamily") -> Callable[..., None]:
        """Take the place of ``KernelFamily.load``."""
        number = len(list(self.place.iterdir()))
        parts = {**_DEFAULTS, **plan.sources}
        text = SHIM + "".join(f"namespace part{n} {{\n{part}\n}}\n" for n, part in enumerate(parts.values()))
        text += "".join(f"using namespace part{n};\n" for n, _ in enumerate(parts)) + _KERNEL
        (self.place / f"{number}.cpp").write_text(text)
        command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", f"{number}.cpp", "-o", f"{number}.so"]
        subprocess.run(command, cwd=self.place, check=True)
        kernel = ctypes.CDLL(str(self.place / f"{number}.so")).negate

        def launch(stream: int, grid: Any, block: Any, x: Any, y: Any, m: int, n: int, *infos: Any) -> None:
            addresses = (each.data_ptr() if isinstance(each, torch.Tensor) else each for each in (x, y, *infos))
            given, made, *others = (ctypes.c_void_p(address) for address in addresses)
            kernel(given, made, m, n, *others)

        return launch


@dataclass
class HostBackend(CpuBackend):
    """Keeps tables in the memory of the host."""

    tables: dict[bytes, Any] = field(default_factory=dict)

    def table(self, data: bytes, index: int) -> int:
        """Return the address of some bytes."""
        made = self.tables.setdefault(data, np.frombuffer(data.ljust(256, b"\0"), np.uint64))
        return int(made.ctypes.data)


@pytest.fixture
def negate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    pytest.importorskip("torch")
    backend = HostBackend()
    monkeypatch.setattr(operators, "make_backend", lambda: backend)
    return declare_negate(tmp_path)


def declare_negate(place: Path) -> Operator:
    """Declare the operator that negates, whose kernels are made at a place."""
    family: Any = lambda: HostFamily(place)  # noqa: E731
    return Operator(
        f"jitlto_{place.name}::negate", family, (Array("x", "float32", "m n"),), (Output("y", "float32", "m n"),),
        lambda case: {}, lambda case: Launch(1, 1), ("x", "y", "m", "n", "prologue", "epilogue"),
        prologue=Seam("load", "x", _LOAD), epilogue=Seam("store", "y", _STORE),
    )  # fmt: skip


def fused(function: Callable[..., Any], *given: Any) -> Any:
    """What a function returns whose operations become one call with an operator, which is checked."""
    from torch._inductor.decomposition import select_decomp_table

    make_fx = torch.fx.experimental.proxy_tensor.make_fx
    traced = make_fx(function, tracing_mode="fake", decomposition_table=select_decomp_table())(*given)
    torch_fusion()(traced.graph)
    found = [node for node in traced.graph.nodes if str(node.target) == "jitlto.fused.default"]
    assert len(found) == 1
    found[0].target = module._run  # the operator is registered for the GPU
    traced.recompile()
    return traced(*given)


def test_functions_on_both_sides_compute_what_pytorch_does(negate: Operator) -> None:
    made = torch_operator(negate)

    def function(x: Any, row: Any, column: Any, one: Any) -> Any:
        return torch.sigmoid(made(x * row + 1) * column - one).to(torch.float64)

    given = torch.randn(5, 8), torch.randn(5, 1), torch.randn(8), torch.randn(())
    x, row, column, one = given
    expected = torch.sigmoid(-(x * row + 1) * column - one).double()
    result = fused(function, *given)
    assert result.dtype == torch.float64
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(made(x), -x)


def test_a_gather_counts_from_the_end_and_reads_nan_outside(negate: Operator) -> None:
    made = torch_operator(negate)
    function = lambda x, index: made(x[index] * 2)  # noqa: E731
    x, index = torch.randn(4, 6), torch.tensor([0, -1, 3, -4, 2])
    torch.testing.assert_close(fused(function, x, index), -2 * x[index])
    outside = fused(function, torch.randn(5, 6), torch.tensor([4, 5, -6, 2**40, -5]))
    assert outside.isnan().all(1).tolist() == [False, True, True, True, False]


def test_what_is_made_of_rows_and_columns_has_the_sizes_of_both(negate: Operator) -> None:
    made = torch_operator(negate)
    row, column = torch.randn(5, 1), torch.randn(8)
    torch.testing.assert_close(fused(lambda row, column: made(2.0**row * column), row, column), -(2.0**row * column))


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_integers_are_divided_as_pytorch_divides_them(negate: Operator, mode: str) -> None:
    made, x = torch_operator(negate), torch.arange(-12, 12, dtype=torch.int32).reshape(3, 8)
    y = torch.tensor([1, -1, 2, -2, 5, -5, 7, -7], dtype=torch.int32)
    result = fused(lambda x, y: made(torch.div(x, y, rounding_mode=mode).float()), x, y)
    torch.testing.assert_close(result, -torch.div(x, y, rounding_mode=mode).float())


def test_integers_wrap_as_in_pytorch(negate: Operator) -> None:
    made, x = torch_operator(negate), torch.tensor([[2**31 - 1, -(2**31), 2**30, -7]], dtype=torch.int32)

    def function(x: Any) -> Any:
        return torch.where(x + 1 > x, 1.0, 2.0) + torch.where(-x == x, 4.0, 8.0) + (x * x % 1000).float()

    torch.testing.assert_close(fused(lambda x: made(function(x)), x), -function(x))


def test_a_gather_of_no_rows_reads_nan(negate: Operator) -> None:
    made = torch_operator(negate)
    result = fused(lambda x, index: made(x[index] * 1), torch.empty(0, 6), torch.tensor([0, -1, 7]))
    assert result.shape == (3, 6) and result.isnan().all()


def test_what_is_gathered_from_stays_in_memory(negate: Operator) -> None:
    made, x, index = torch_operator(negate), torch.randn(5, 6), torch.tensor([4, 0, 1, 1, 2])
    function = lambda x, index: made((x * 2)[index] + 1)  # noqa: E731 - as many rows as are taken
    torch.testing.assert_close(fused(function, x, index), -((x * 2)[index] + 1))


def test_inputs_by_hand_are_copied_where_a_view_is_not_aligned(negate: Operator) -> None:
    made = torch_operator(negate.with_epilogue("v * scale + bias[col]", scale="float", bias="float32"))
    x, bias = torch.randn(5, 8), torch.randn(9)
    for scale in (0.5, math.inf, -2):
        torch.testing.assert_close(made(x, scale, bias[:8]), -x * scale + bias[:8])
        torch.testing.assert_close(made(x, scale, bias[1:]), -x * scale + bias[1:])


def test_one_array_needs_no_table(negate: Operator) -> None:
    backend = operators.make_backend()
    made = torch_operator(replace(negate, qualname=f"{negate.qualname}_one").with_epilogue("v + b[row]", b="float64"))
    x, b = torch.randn(5, 8), torch.randn(5, dtype=torch.float64)
    torch.testing.assert_close(made(x, b), -x + b.float()[:, None])
    assert not backend.tables


_COMPILED = """
import sys
from pathlib import Path
import torch
from jitlto import torch_fusion, torch_operator
from jitlto.frameworks import torch_operator as operators
from tests.frameworks.test_fused_calls import HostBackend, declare_negate

backend = HostBackend()
operators.make_backend = lambda: backend
place = Path(sys.argv[1])
negate = torch_operator(declare_negate(place))

def function(x, index, scale):
    return torch.nn.functional.gelu(negate(x[index] * 2) * scale + 1).to(torch.bfloat16)

run = torch.compile(function, fullgraph=True, options={"post_grad_custom_post_pass": torch_fusion()})
for m, rows in ((5, 7), (9, 4), (6, 6)):
    x, index, scale = torch.randn(rows, 8), torch.randint(-rows, rows, (m,)), torch.randn(8)
    for each in (x, index):
        torch._dynamo.mark_dynamic(each, 0)
    expected = torch.nn.functional.gelu(-2 * x[index] * scale + 1)
    torch.testing.assert_close(run(x, index, scale).float(), expected, rtol=2**-8, atol=1e-6)
print(len(list(place.glob("*.so"))))
"""


def test_compiled_code_makes_one_call_for_all_sizes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    kernels = int(output_of(_COMPILED, tmp_path))
    assert kernels == 3  # one for each shape, as this family is its own cache, and none without functions
