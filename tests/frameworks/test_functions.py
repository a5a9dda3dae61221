"""Functions that are fused into kernels: what is printed compiles, and has PyTorch's dtypes. No GPU."""

from functools import partial
from typing import Any

import pytest

from jitlto.frameworks.functions import (
    COMPUTED,
    OPERATIONS,
    PRELUDE,
    STORED,
    Input,
    Printer,
    UnsupportedError,
    Value,
    constant,
    promote,
    rounded,
)
from jitlto.runtime.family import KernelFamily
from tests.support.lazy import Lazy

torch = Lazy("torch")
#: How many operands each operation has.
COUNTS = {name: sum(each in text for each in ("{a}", "{b}", "{c}")) for name, (_, text) in OPERATIONS.items()}
_STORE = """
__device__ void fft_store(float2* output, unsigned row, unsigned index, unsigned length, float2 value, void* info) {
  const float2 values[1] = {value};
  fused::store(output, row, index, length, values, info);
}
"""


def test_every_operation_compiles_for_every_dtype_that_it_takes(fft: KernelFamily) -> None:
    printer = Printer()
    total = Value("v", "complex64")
    taken = 0
    for number, dtype in enumerate(STORED):
        element = printer.read(Input(f"x{number}", dtype, ("element", "row", "column", "one")[number % 4]))
        for name in OPERATIONS:
            try:
                operands = [element] * COUNTS[name] if name != "where" else [True, element, element]
                made = printer.apply(name, operands)
            except UnsupportedError:
                continue
            taken += 1
            total = printer.apply("add", [total, made])
    assert taken > 200
    source = PRELUDE + printer.finish(total, "complex64").text + _STORE
    chosen = {"kind": "c2c", "direction": "forward", "data_type": "float", "size": "64", "load": "identity"}
    plan = fft.planner(**chosen).add_source(source).plan(arch="sm_90")
    assert plan.link().cubin


def test_gathers_and_numbers_compile_too(fft: KernelFamily) -> None:
    printer = Printer()
    printer.read(Input("index", "int32", "row"))
    element = printer.read(Input("table", "bfloat16", "gathered"))
    scaled = printer.apply("mul", [element, printer.read(Input("scale", "float", "one"))])
    made = printer.apply("to", [printer.apply("gelu", [scaled])], "complex64")
    function = printer.finish(made)
    assert [each.name for each in function.inputs] == ["index", "table", "scale"]
    load = """
__device__ float2 fft_load(const float2*, unsigned row, unsigned index, unsigned length, void* info) {
  float2 value[1];
  fused::load(row, index, length, value, info);
  return value[0];
}
"""
    chosen = {"kind": "c2c", "direction": "forward", "data_type": "float", "size": "64", "store": "identity"}
    planner = fft.planner(**chosen).add_source(PRELUDE + function.text + load)
    assert planner.plan(arch="sm_90").link().cubin


@pytest.mark.parametrize("name", [name for name, count in COUNTS.items() if count == 2])
def test_dtypes_are_those_of_pytorch(name: str) -> None:
    mode = name.partition("div_")[2]
    function = partial(torch.div, rounding_mode=mode) if mode else getattr(torch, name)
    for one in COMPUTED:
        for other in (*COMPUTED, 2, 0.5):
            values: list[Any] = [torch.ones(2, dtype=getattr(torch, one))]
            values += [torch.ones(2, dtype=getattr(torch, other)) if isinstance(other, str) else other]
            operands = [Value("a", one), Value("b", other) if isinstance(other, str) else other]
            try:
                made = Printer().apply(name, operands)
                expected = str(function(*values).dtype).rpartition(".")[2]
            except (UnsupportedError, TypeError, RuntimeError):  # the others: PyTorch takes no such operands
                continue
            assert made.dtype == expected, (name, one, other)


def test_numbers_decide_only_by_their_category() -> None:
    assert promote([Value("a", "bfloat16"), constant(2.5)]) == "bfloat16"
    assert promote([Value("a", "int32"), constant(2.5)]) == "float32"
    assert promote([Value("a", "int32"), constant(2)]) == "int32"
    assert promote([Value("a", "float16"), Value("b", "bfloat16")]) == "float32"
    assert promote([Value("a", "float64"), constant(1j)]) in ("complex64", "complex128")


@pytest.mark.parametrize(
    ("name", "operands"),
    [("bessel_j0", [Value("a", "float32")]), ("add", [Value("a", "float32")]), ("floor", [Value("a", "complex64")]),
     ("add", [Value("a", "bool"), Value("b", "bool")]), ("bitwise_and", [Value("a", "float32"), 2]),
     ("abs", [Value("a", "complex64")]), ("eq", [Value("a", "uint8"), -1]), ("add", [Value("a", "int64"), 2**63]),
     ("gelu", []), ("silu", [Value("a", "float32"), 2])],
)  # fmt: skip
def test_what_the_table_lacks_is_refused(name: str, operands: list[Any]) -> None:
    with pytest.raises(UnsupportedError):
        Printer().apply(name, operands)


def test_a_result_of_a_known_dtype_is_refused_all_the_same() -> None:
    with pytest.raises(UnsupportedError):
        Printer().apply("abs", [Value("a", "complex64")], "float32")


def test_a_number_is_rounded_to_the_dtype_of_an_array_of_it() -> None:
    assert "to<long long>(3.7)" in rounded("3.7", "int64")
    assert "bfloat16" in rounded("0.1", "bfloat16")


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan"), -0.0, 1e-310, -(2**63), 2**63 - 1, True])
def test_numbers_are_printed_exactly(fft: KernelFamily, number: Any) -> None:
    printer = Printer()
    made = printer.apply("add", [Value("v", "complex64"), printer.apply("to", [number], "complex64")])
    chosen = {"kind": "c2c", "direction": "forward", "data_type": "float", "size": "2", "load": "identity"}
    fft.planner(**chosen).add_source(PRELUDE + printer.finish(made, "complex64").text + _STORE).plan(arch="sm_90")
