"""The pass that fuses functions into operators, on graphs of tensors without memory: no GPU."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from docs.examples.operators import declare_inverse, declare_segment_reduce, declare_transform
from jitlto import Flag, torch_fusion, torch_operator
from jitlto.base.errors import OperatorError
from jitlto.frameworks.parts import Seam
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises
from tests.support.lazy import Lazy

torch = Lazy("torch")


@pytest.fixture(scope="module")
def transform(fft: KernelFamily) -> Any:
    pytest.importorskip("torch")
    return torch_operator(declare_transform(fft))


@pytest.fixture(scope="module")
def inverse(fft: KernelFamily) -> Any:
    pytest.importorskip("torch")
    return torch_operator(declare_inverse(fft))


@pytest.fixture(scope="module")
def reduce(segment_reduce: KernelFamily) -> Any:
    pytest.importorskip("torch")
    return torch_operator(declare_segment_reduce(segment_reduce))


def rows(*shape: int, dtype: Any = None) -> Any:
    return torch.empty(*shape, dtype=dtype or torch.complex64, device="cuda")


def left(function: Callable[..., Any], make: Callable[[], Any], *, symbolic: bool = False) -> list[str]:
    """The operations of a function's graph behind the pass; each call is checked against its kernel, which compiles."""
    from torch._inductor.decomposition import select_decomp_table

    modes = torch._subclasses.FakeTensorMode
    with modes(allow_non_fake_inputs=True) as fake:
        given = make()
    if symbolic:
        shapes = torch.fx.experimental.symbolic_shapes
        fake = modes(allow_non_fake_inputs=True, shape_env=shapes.ShapeEnv())
        dynamic = shapes.DimDynamic.DYNAMIC
        given = tuple(
            fake.from_tensor(x, symbolic_context=shapes.StatelessSymbolicContext([dynamic] * x.dim())) for x in given
        )
    make_fx = torch.fx.experimental.proxy_tensor.make_fx
    mode = "symbolic" if symbolic else "fake"
    traced = make_fx(function, tracing_mode=mode, decomposition_table=select_decomp_table())(*given)
    torch_fusion()(traced.graph)
    traced.graph.lint()
    calls = [node for node in traced.graph.nodes if node.op == "call_function"]
    for node in calls:
        if node.target is torch.ops.jitlto.fused.default:
            values = torch.utils._pytree.tree_map(lambda each: getattr(each, "meta", {}).get("val", each), node.args)
            expected = node.meta["val"]
            with expected.fake_mode:
                result = node.target(*values)
            assert (result.dtype, result.stride()) == (expected.dtype, expected.stride())
            assert [str(size) for size in result.shape] == [str(size) for size in expected.shape]
    return [str(node.target).removeprefix("aten.").removesuffix(".default") for node in calls]


def test_chains_behind_and_before_an_operator_become_one_call(transform: Any) -> None:
    def function(x: Any, w: Any) -> Any:
        return transform(x * w, "forward") * 0.5 * w

    assert left(function, lambda: (rows(10, 64), rows(10, 1))) == ["jitlto.fused"]
    assert left(function, lambda: (rows(10, 64), rows(1, 64))) == ["jitlto.fused"]
    assert left(function, lambda: (rows(10, 64), rows(64))) == ["jitlto.fused"]
    assert left(function, lambda: (rows(10, 64), rows(1, 1))) == ["jitlto.fused"]


def test_the_result_may_have_another_dtype(fft: KernelFamily, inverse: Any) -> None:
    gelu, dtype = torch.nn.functional.gelu, torch.bfloat16
    some = next(c for c in fft.configurations() if c["kind"] == "c2r" and c["data_type"] != "__half")
    half, kind = int(some["size"]) // 2 + 1, torch.complex64 if some["data_type"] == "float" else torch.complex128
    assert left(lambda y: gelu(inverse(y) * 0.5).to(dtype), lambda: (rows(10, half, dtype=kind),)) == ["jitlto.fused"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_gathers_are_loads(reduce: Any, dtype: str, symbolic: bool) -> None:
    kind = getattr(torch, dtype)

    def function(x: Any, index: Any, weight: Any, offsets: Any, bias: Any) -> Any:
        return (reduce((x[index] * weight[:, None]).relu(), offsets, "sum") + bias).tanh()

    def make() -> Any:
        index, offsets = rows(1000, dtype=torch.int64), rows(101, dtype=torch.int64)
        return rows(100, 64, dtype=kind), index, rows(1000, dtype=kind), offsets, rows(64, dtype=kind)

    found = left(function, make, symbolic=symbolic)
    assert found[-1] == "jitlto.fused", found
    assert set(found[:-1]) == ({"slice.Tensor", "unsqueeze"} if symbolic else {"unsqueeze"})


def test_what_is_computed_for_the_chain_alone_goes_with_it(transform: Any) -> None:
    assert left(lambda x, z: transform(x) * (z * 2), lambda: (rows(10, 64), rows(10, 64))) == ["jitlto.fused"]


def test_divisions_of_integers_are_fused(reduce: Any) -> None:
    def make() -> Any:
        return rows(10, 4, dtype=torch.int32), rows(5, dtype=torch.int64)

    assert left(lambda x, offsets: reduce((x // 3).float(), offsets, "sum"), make) == ["jitlto.fused"]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda f, x: (f(x), f(x) * 2)[1:], ["jitlto.fused"]),
        (lambda f, x: [y := f(x), y * 2], ["transform", "mul.Tensor"]),  # as where a gradient needs it
        (lambda f, x: (f(x) * 2).sum(0), ["jitlto.fused", "sum.dim_IntList"]),
        (lambda f, x: f(x).cumsum(0) * 2, ["transform", "cumsum", "mul.Tensor"]),
        (lambda f, x: f(x.t().contiguous().t() * 1).neg(), None),
    ],
)
def test_the_rest_is_left_alone(transform: Any, function: Any, expected: list[str] | None) -> None:
    found = left(lambda x: function(transform, x), lambda: (rows(64, 64),))
    found = [name.replace("jitlto_examples.", "") for name in found]
    assert expected is None or found[-len(expected) :] == expected


def test_what_the_operator_reads_itself_stays(reduce: Any) -> None:
    def function(x: Any, offsets: Any) -> Any:
        ends = offsets * 1
        return reduce(x, ends, "sum") + ends[:1]

    found = left(function, lambda: (rows(10, 4, dtype=torch.float32), rows(5, dtype=torch.int64)))
    assert found[0] == "mul.Tensor" and found[-1] == "jitlto.fused", found


def test_numbers_that_vary_are_left_alone(transform: Any) -> None:
    found = left(lambda x: transform(x) * x.shape[0], lambda: (rows(10, 64),), symbolic=True)
    assert "jitlto.fused" not in found and found[-1] == "mul.Tensor", found


def test_a_function_that_no_kernel_takes_is_left_alone(fft: KernelFamily) -> None:
    pytest.importorskip("torch")
    declared = declare_transform(fft)
    broken = replace(declared, qualname="jitlto_test::broken", epilogue=Seam("fft_store", "y", "nonsense"))
    found = left(lambda x: torch_operator(broken)(x) * 2, lambda: (rows(10, 64),))
    assert found == ["jitlto_test.broken", "mul.Tensor"]


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda f, x: f(x).abs(), "abs"),  # of a complex number
        (lambda f, x: f(x.conj() * x), "clone"),  # which reads what its memory does not hold
        (lambda f, x: f(x) * x.real.to(torch.uint8).eq(-1), "eq.Scalar"),  # which wraps
    ],
)
def test_what_would_mean_something_else_is_left_alone(transform: Any, function: Any, kept: str) -> None:
    assert kept in left(lambda x: function(transform, x), lambda: (rows(64, 64),))


def test_an_argument_that_is_read_twice_is_made_before(reduce: Any) -> None:
    def function(x: Any) -> Any:
        ends = (x * 2)[:, 0].to(torch.int64)
        return reduce(x * 2, ends, "sum") * 2

    assert left(function, lambda: (rows(5, 5, dtype=torch.float32),))[-1] == "jitlto.fused"


def test_with_too_many_inputs_on_one_side_the_other_is_fused(transform: Any) -> None:
    def function(x: Any, *others: Any) -> Any:
        y = transform(x * 2)
        for other in others:
            y = y * other
        return y

    def make() -> Any:
        return [rows(10, 64) for _ in range(10)]

    found = left(function, make)
    assert found == ["jitlto.fused"] or found.count("jitlto.fused") == 1, found


def test_code_of_an_earlier_declaration_is_an_error(fft: KernelFamily) -> None:
    pytest.importorskip("torch")
    module = pytest.importorskip("jitlto.frameworks.torch_fusion")
    declared = replace(declare_transform(fft), qualname="jitlto_test::anew")
    torch_operator(declared)
    text = json.dumps({"values": {"y": None}, "arrays": [], "made": None, "functions": {}})
    with raises(OperatorError, "operator-framework", where="jitlto_test::anew", hint="reset"):
        module._run(text, [], "jitlto_test::anew")


def test_code_for_cpp_keeps_the_operator(transform: Any) -> None:
    with torch._inductor.config.patch(cpp_wrapper=True):
        assert len(left(lambda x: transform(x) * 2, lambda: (rows(10, 64),))) == 2


def test_a_long_chain_takes_time_in_proportion(transform: Any) -> None:
    def took(steps: int) -> float:
        def function(x: Any) -> Any:
            y = transform(x)
            for _ in range(steps):
                y = y * 0.5
            return y.sum(0), y

        with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
            given = rows(10, 64)
        traced = torch.fx.experimental.proxy_tensor.make_fx(function, tracing_mode="fake")(given)
        begin = time.perf_counter()
        torch_fusion()(traced.graph)
        return time.perf_counter() - begin

    took(10)
    assert took(3000) < 30 * took(300)


def test_an_operation_with_further_arguments_is_left_alone(transform: Any) -> None:
    gelu, given = torch.nn.functional.gelu, torch.empty(10, 64, dtype=torch.complex64)
    make_fx = torch.fx.experimental.proxy_tensor.make_fx
    traced = make_fx(lambda x: transform(gelu(x.real, approximate="tanh") * x), tracing_mode="fake")(given)
    torch_fusion()(traced.graph)
    assert any(str(node.target) == "aten.gelu.default" for node in traced.graph.nodes)


def test_graphs_are_kept_for_the_seams_and_arguments_that_operators_have(fft: KernelFamily) -> None:
    pytest.importorskip("torch")
    declared = replace(declare_transform(fft), qualname="jitlto_test::kept")
    before = torch_fusion().uuid()
    made = declared.with_epilogue("v * 2")  # as the pass makes one, too
    assert made.sources and torch_fusion().uuid() == before
    for changed in ({"epilogue": None}, {"arguments": (*declared.arguments, Flag("more", "int", 1))}):
        other, known = replace(declared, **changed), torch_fusion().uuid()
        assert known != before
        del other


def test_what_ends_a_chain_is_named(transform: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "jitlto.fusion"):
        left(lambda x: transform(transform(x) * 2), lambda: (rows(10, 64),))
    assert "transform.default" in caplog.text and " of 1 operands" not in caplog.text
