"""A call is checked against the kernel that it chooses where it is traced: no device, and nothing linked."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from jitlto import Array, Flag, Launch, Operator, Output, Scalar, jax_call, torch_operator
from jitlto.base.errors import ArgumentError, JitltoError, LaunchError, OperatorError, PlanError, UnknownValueError
from jitlto.base.errors import UnknownParameterError as UnknownName
from jitlto.frameworks.fit import check_call
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises
from tests.support.families import built
from tests.support.operators import FAMILY, declare

_numbers = itertools.count()

KERNELS = {
    "family.toml": """
[family]
name = "fitted"

[entrypoint.kern]
matrix = "kern.json"
template = "kern.cu.jinja"
key = ["data_type"]
params = ["x", "halves", "bytes", "y", "n", "is_deep", "small"]
""",
    "kern.json": '{"data_type": ["float", "double"]}',
    "kern.cu.jinja": """
#include <cuda_bf16.h>
#include <cuda_fp8.h>
template <typename T> __global__ void kern(const T* x, const __nv_bfloat16* halves, const __nv_fp8_e4m3* bytes, T* y,
                                           long long n, bool is_deep, signed char small) {
  if (threadIdx.x < n) y[threadIdx.x] = x[0] + T(float(halves[0])) + T(float(bytes[0])) + T(is_deep) + T(small);
}
template __global__ void kern<{{data_type}}>(const {{data_type}}*, const __nv_bfloat16*, const __nv_fp8_e4m3*,
                                             {{data_type}}*, long long, bool, signed char);
""",
}


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    return built(tmp_path_factory.mktemp("fitted"), KERNELS, "fitted")


RIGHT: dict[str, Any] = {
    "arguments": (
        Array("x", "T", "n"),
        Array("halves", "bfloat16", "n"),
        Array("bytes", "float8_e4m3fn", "n"),
        Scalar("small", "int"),
        Flag("is_deep", "bool", False),
    ),
    "outputs": (Output("y", "T", "n"),),
    "configuration": lambda case: {"data_type": case.T},
    "launch": lambda case: Launch(grid=-(-case.n // 256), block=256),
    "parameters": ("x", "halves", "bytes", "y", "n", "is_deep", "small"),
    "dtypes": {"T": ("float32", "float64")},
}
ARGUMENTS = RIGHT["arguments"]


def make(family: KernelFamily, **changed: Any) -> Operator:
    return Operator(f"fit{next(_numbers)}::op", family, **{**RIGHT, **changed})


def call(operator: Operator, dtype: str = "float32", small: Any = None, n: int = 5) -> Any:
    values: list[Any] = []
    for argument in operator.arguments:
        if isinstance(argument, Array):
            values.append(((n,), dtype if argument.dtype == "T" else argument.dtype))
        else:
            values.append(small if isinstance(argument, Scalar) else argument.default)
    return check_call(operator, values)


@pytest.mark.slow
def test_what_fits_is_planned_without_a_device(family: KernelFamily) -> None:
    operator = make(family)
    for dtype, kernel in (("float32", "float"), ("float64", "double"), ("float32", "float")):
        assert call(operator, dtype).configuration == {"data_type": kernel}
    assert call(operator, small=-128) == call(operator, small=127)
    assert call(operator, n=0) is None


WRONG: list[tuple[dict[str, Any], type[JitltoError], str]] = [
    ({"configuration": lambda case: {"data_type": "half"}}, UnknownValueError, "plan-unknown-value"),
    ({"configuration": lambda case: {"data_typ": case.T}}, UnknownName, "plan-unknown-parameter"),
    ({"configuration": lambda case: {}}, PlanError, ""),
    ({"entry": "other"}, PlanError, "plan-unknown-entrypoint"),
    ({"link_options": {"nothing": 1}}, PlanError, "plan-invalid-link"),
    ({"configuration": lambda case: {"data_type": "float"}, "dtypes": {"T": ("float64",)}},
     ArgumentError, "launch-argument-dtype"),
    ({"parameters": ("x", "halves", "bytes", "y", "n", "is_deep")}, ArgumentError, "launch-argument-count"),
    ({"parameters": (*RIGHT["parameters"], None)}, ArgumentError, "launch-argument-count"),
    ({"parameters": ("x", "halves", "bytes", "y", "x", "is_deep", "small")}, ArgumentError, "launch-argument-type"),
    ({"parameters": ("x", "halves", "bytes", "y", 1.5, "is_deep", "small")}, ArgumentError, "launch-argument-type"),
    ({"parameters": ("x", "halves", "bytes", "y", "n", "n", "small")}, ArgumentError, "launch-argument-type"),
    ({"parameters": ("x", "halves", "bytes", "y", "n", "is_deep", 128)}, ArgumentError, "launch-argument-range"),
    ({"parameters": ("x", "halves", "bytes", "y", "n", "is_deep", lambda case: 1 << case.n + 5)},
     ArgumentError, "launch-argument-range"),
    ({"parameters": ("y", "halves", "bytes", "x", "n", "is_deep", "small")}, OperatorError, "operator-output"),
    ({"parameters": ("x", "halves", "bytes", None, "n", "is_deep", "small")}, OperatorError, "operator-output"),
    ({"parameters": ("n", "halves", "bytes", "y", "n", "is_deep", "small")}, OperatorError, "operator-parameter"),
    ({"parameters": (16, "halves", "bytes", "y", "n", "is_deep", "small")}, OperatorError, "operator-parameter"),
    ({"parameters": ("x", "bytes", "halves", "y", "n", "is_deep", "small")}, ArgumentError, "launch-argument-dtype"),
    ({"arguments": (*ARGUMENTS[:3], Scalar("small", "float"), ARGUMENTS[4])}, ArgumentError, "launch-argument-type"),
    ({"arguments": (replace(ARGUMENTS[0], mutated=True), *ARGUMENTS[1:])}, OperatorError, "operator-output"),
    ({"arguments": (replace(ARGUMENTS[0], dtype="int32"), Array("z", "T", "n"), *ARGUMENTS[1:])},
     ArgumentError, "launch-argument-dtype"),
    ({"launch": lambda case: Launch(1, 1025)}, LaunchError, "launch-config"),
    ({"launch": lambda case: Launch(1, (32, 33))}, LaunchError, "launch-config"),
    ({"launch": lambda case: Launch(-1, 32)}, LaunchError, "launch-config"),
    ({"launch": lambda case: Launch(3, 32, cluster=2)}, LaunchError, "launch-config"),
    ({"launch": lambda case: Launch(1, 32, shared_memory=-1)}, LaunchError, "launch-config"),
    ({"launch": lambda case: 3}, OperatorError, "operator-call"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("changed", "error", "code"), WRONG)
def test_what_does_not_fit_is_refused(
    family: KernelFamily, changed: dict[str, Any], error: type[JitltoError], code: str
) -> None:
    operator = make(family, **changed)
    with pytest.raises(error) as caught:
        call(operator, "float64" if changed.get("dtypes") else "float32")
    assert caught.value.code.startswith(code)


@pytest.mark.slow
@pytest.mark.parametrize(
    "parameters",
    [
        (None, "halves", "bytes", "y", "n", "is_deep", "small"),
        (0, "halves", "bytes", "y", "n", "is_deep", "small"),
        (
            lambda case: 1 << 40,
            "halves",
            "bytes",
            "y",
            "n",
            "is_deep",
            "small",
        ),  # an address, which a function may know
        ("x", "halves", "bytes", "y", "n", 1, "small"),
        ("x", "halves", "bytes", "y", "small", True, lambda case: -case.n),
        ("y", "halves", "bytes", "y", "n", "is_deep", "small"),
    ],
)
def test_what_a_kernel_takes_is_not_refused(family: KernelFamily, parameters: tuple[Any, ...]) -> None:
    assert call(make(family, parameters=parameters)) is not None


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Operator]:
    made = built(tmp_path_factory.mktemp("operators"), FAMILY, "operators")
    return declare(made, f"traced{next(_numbers)}")


@pytest.mark.slow
def test_pytorch_checks_tensors_without_memory(declared: dict[str, Operator]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    reduce_rows, square = torch_operator(declared["reduce_rows"]), torch_operator(declared["square"])
    x = torch.empty(3, 4, device="meta")
    assert reduce_rows(x, None, "largest")[0].shape == (3,)
    with pytest.raises(UnknownValueError):
        reduce_rows(x, None, "mean")
    with torch._subclasses.FakeTensorMode():
        assert square(torch.empty(3, 4), 2.5).shape == (3, 4)
        with pytest.raises(UnknownValueError):
            reduce_rows(torch.empty(3, 4), None, "mean")
    with pytest.raises(ArgumentError):
        square(x, 1j)


@pytest.mark.slow
def test_pytorch_checks_graphs_with_symbols_for_the_sizes_of_the_example(declared: dict[str, Operator]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    reduce_rows = torch_operator(declared["reduce_rows"])

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, reduction: str) -> None:
            super().__init__()
            self.reduction = reduction

        def forward(self, x: Any) -> Any:
            return reduce_rows(x, None, self.reduction)[0]

    def export(reduction: str) -> Any:
        sizes = ({0: torch.export.Dim("m", min=2), 1: torch.export.Dim("n", min=2)},)
        return torch.export.export(Model(reduction), (torch.ones(3, 4),), dynamic_shapes=sizes)

    assert len(export("sum").range_constraints) == 2
    with pytest.raises(Exception, match="reduction"):
        export("mean")


@pytest.mark.slow
def test_jax_checks_abstract_values(declared: dict[str, Operator]) -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    reduce_rows, square = jax_call(declared["reduce_rows"]), jax_call(declared["square"])
    with jax.enable_x64(True):
        x = jax.ShapeDtypeStruct((3, 4), "float32")
        assert jax.eval_shape(lambda x: reduce_rows(x, None, "largest"), x)[0].shape == (3,)
        assert jax.eval_shape(square, x).shape == (3, 4)
        with pytest.raises(UnknownValueError):
            jax.eval_shape(lambda x: reduce_rows(x, None, "mean"), x)
        size = jax.export.symbolic_shape("m, n")
        with pytest.raises(OperatorError):
            jax.eval_shape(square, jax.ShapeDtypeStruct(size, "float32"))


@pytest.mark.slow
def test_examples_are_of_flags_sizes_and_dtypes(family: KernelFamily) -> None:
    right = {"T": ("float32",), "n": (3, 4), "is_deep": (True,)}
    assert make(family, examples=(right, {})).examples == (right, {})
    for wrong in ({"small": (1,)}, {"x": ("float32",)}, {"n": ()}):
        with raises(OperatorError, "operator-argument"):
            make(family, examples=(wrong,))


def test_a_small_family_is_checked(mini: KernelFamily) -> None:
    """A fast test of what the others prove in full."""
    operator = Operator(
        f"fit{next(_numbers)}::kern",
        mini,
        (Array("x", "T", "n", mutated=True), Flag("op_name", "str")),
        (),
        lambda case: {"data_type": case.T, "op_name": case.op_name},
        lambda case: Launch(1, 64),
        ("x", "n"),
        {"T": ("float32", "float64")},
    )
    plan = check_call(operator, [((5,), "float64"), "twice"])
    assert plan is not None
    assert plan.configuration == {"data_type": "double", "op_name": "twice"}
    with pytest.raises(UnknownValueError):
        check_call(operator, [((5,), "float64"), "thrice"])
    with pytest.raises(OperatorError):
        check_call(replace(operator, parameters=("n", "x")), [((5,), "float64"), "twice"])
    with pytest.raises(ArgumentError):
        check_call(replace(operator, parameters=("x", "x")), [((5,), "float64"), "twice"])
