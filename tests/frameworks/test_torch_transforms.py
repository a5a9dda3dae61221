"""``torch.compile``, ``torch.func``, forward mode, autocast: right, or an error that names the cause. Without a GPU."""

import dataclasses
import itertools
import math
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jitlto import Array, Backward, Operator, Scalar, torch_operator
from jitlto.base.errors import OperatorError
from tests.support.errors import raises
from tests.support.lazy import Lazy
from tests.support.operators import CpuBackend, CpuFamily, declare

pytestmark = pytest.mark.slow
torch, module = Lazy("torch"), Lazy("jitlto.frameworks.torch_operator")

_namespaces = (f"jitlto_transforms{number}" for number in itertools.count())


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> dict[str, Operator]:
    monkeypatch.setattr(module, "make_backend", CpuBackend)
    family = CpuFamily()
    return declare(lambda: family, next(_namespaces))


@pytest.fixture
def square(operators: dict[str, Operator]) -> Any:
    return torch_operator(operators["square"])


@pytest.fixture
def plain(operators: dict[str, Operator]) -> Any:
    """The same without gradients."""
    return torch_operator(without_gradients(operators))


def without_gradients(operators: dict[str, Operator], **changed: Any) -> Operator:
    named = f"{operators['square'].namespace}::plain"
    return dataclasses.replace(operators["square"], qualname=named, backward=None, **changed)


@pytest.fixture
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def rows(m: int = 4, n: int = 6) -> Any:
    return torch.linspace(-3, 3, m * n).reshape(m, n)


# --- forward mode ---


def _dual(function: Any, x: Any) -> Any:
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, torch.ones_like(x))))


TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,)),
    "jacfwd": lambda f, x: torch.func.jacfwd(f)(x),
    "hessian": lambda f, x: torch.func.hessian(lambda x: f(x).sum())(x),
    "jvp of vmap": lambda f, x: torch.func.jvp(torch.vmap(f), (x,), (x,)),
    "vmap of jvp": lambda f, x: torch.vmap(lambda x: torch.func.jvp(f, (x,), (x,)))(x),
    "jvp of grad": lambda f, x: torch.func.jvp(torch.func.grad(lambda x: f(x).sum()), (x,), (x,)),
    "grad of jvp": lambda f, x: torch.func.grad(lambda x: torch.func.jvp(f, (x,), (x,))[1].sum())(x),
    "linearize": lambda f, x: torch.func.linearize(f, x)[1](x),
    "dual numbers": _dual,
    "vmap": lambda f, x: torch.vmap(f)(x),
    "grad": lambda f, x: torch.func.grad(lambda x: f(x).sum())(x),
    "functionalize": lambda f, x: torch.func.functionalize(f)(x),
}


@pytest.mark.parametrize("differentiate", TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize("name", ["square", "plain"])
def test_torch_func_and_forward_mode_are_refused(
    differentiate: Callable[[Any, Any], Any], name: str, request: pytest.FixtureRequest
) -> None:
    operator = request.getfixturevalue(name)
    with pytest.raises(OperatorError) as caught:
        differentiate(operator, rows())
    assert caught.value.code == "operator-forward"


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("name", ["square", "plain"])
def test_forward_mode_is_refused_in_compiled_code(name: str, request: pytest.FixtureRequest) -> None:
    operator = request.getfixturevalue(name)
    function = torch.compile(lambda x: torch.func.jvp(operator, (x,), (x,)), backend="aot_eager")
    with pytest.raises(Exception, match=name):
        function(rows())


def test_forward_mode_is_refused_for_what_is_mutated(operators: dict[str, Operator]) -> None:
    accumulate = torch_operator(operators["accumulate"])

    def added(x: Any) -> Any:
        total = torch.zeros_like(x)
        accumulate(total, x)
        return total

    for differentiate in (TRANSFORMS["jvp"], TRANSFORMS["dual numbers"]):
        with raises(OperatorError, "operator-forward", where="accumulate"):
            differentiate(added, rows())


@pytest.mark.parametrize("name", ["square", "plain"])
def test_forward_mode_goes_past_what_has_no_tangent(name: str, request: pytest.FixtureRequest) -> None:
    operator, x = request.getfixturevalue(name), rows()
    value, tangent = torch.func.jvp(lambda y: operator(x) * y, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(value, x**3)
    torch.testing.assert_close(tangent, x * x)
    torch.testing.assert_close(_dual(lambda y: operator(x) * y, x).tangent, x * x)


# --- other transforms ---


def test_second_derivatives_need_a_backward_of_the_second_operator(operators: dict[str, Operator]) -> None:
    def twice(operator: Any) -> Any:
        x = rows().requires_grad_()
        (first,) = torch.autograd.grad(operator(x).sum(), x, create_graph=True)
        first.sum().backward()
        return x.grad

    square = torch_operator(operators["square"])
    with pytest.raises(RuntimeError, match="once_differentiable"):
        twice(square)
    # d(factor 2 x g)/dx is the kernel itself, for a constant g of one.
    third = dataclasses.replace(operators["square_backward"], qualname=f"{square._schema.name}_third")
    second = dataclasses.replace(
        operators["square_backward"],
        qualname=f"{square._schema.name}_second",
        backward=Backward(third, ("grad_grad_x", "grad_y", "factor"), ("x",)),
    )
    first = dataclasses.replace(
        operators["square"],
        qualname=f"{square._schema.name}_first",
        backward=Backward(second, ("grad_y", "x", "factor"), ("x",)),
    )
    torch.testing.assert_close(twice(torch_operator(first)), torch.full((4, 6), 2.0))


def test_autocast_is_named_where_it_chose_a_dtype(square: Any) -> None:
    x = rows(6, 6)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(square(x), x * x)
        with raises(OperatorError, "operator-call", "bfloat16", where="square", hint="autocast"):
            square(x @ x)
    with raises(OperatorError, "operator-call", "bfloat16", where="square") as caught:
        square(x.bfloat16())
    assert "autocast" not in str(caught.value)


# --- numbers ---


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("arithmetic", [False, True])
@pytest.mark.parametrize("name", ["square", "plain"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_float_may_vary_in_compiled_code(
    name: str, backend: str, arithmetic: bool, request: pytest.FixtureRequest
) -> None:
    if backend == "inductor" and shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    operator = request.getfixturevalue(name)

    def model(x: Any, factor: float) -> Any:
        return operator(x * factor, factor + 0.5) if arithmetic else operator(x, factor)

    counter = pytest.importorskip("torch._dynamo.testing").CompileCounterWithBackend(backend)
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for factor in (1.0, 2.0, 3.0, -0.0, 7.5, 3.0):
        torch.testing.assert_close(compiled(rows(), factor), model(rows(), factor))
    assert counter.frame_count <= 3  # the first value, zeros perhaps, and all others


@pytest.mark.usefixtures("fresh")
def test_a_float_may_vary_in_compiled_gradients_and_mutations(operators: dict[str, Operator]) -> None:
    square, added = torch_operator(operators["square"]), torch_operator(mutating(operators))

    def model(x: Any, factor: float) -> Any:
        total = torch.zeros_like(x)
        added(total, square(x * factor, factor + 1), factor * 2)
        return total

    def gradients(function: Callable[..., Any], factor: float) -> Any:
        x = rows().requires_grad_()
        square_of = function(lambda x, factor: square(x * factor, factor + 1) * x)
        square_of(x, factor).sum().backward()
        return x.grad

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    compile_once = torch.compile(
        lambda x, factor: square(x * factor, factor + 1) * x, backend="aot_eager", fullgraph=True
    )
    for factor in (1.0, 2.0, 3.0, 4.0):
        torch.testing.assert_close(compiled(rows(), factor), model(rows(), factor))
        torch.testing.assert_close(gradients(lambda _: compile_once, factor), gradients(lambda f: f, factor))


def mutating(operators: dict[str, Operator]) -> Operator:
    """``total += factor * x``, with the kernel of ``square_backward``: its result is read where it is written."""
    declared = operators["accumulate"]

    def add(read: Any, total: Any, x: Any, n: int, factor: float) -> None:
        read(total, n)[:] += factor * read(x, n)

    family = CpuFamily({"added": add})
    return dataclasses.replace(
        declared,
        qualname=f"{declared.namespace}::added",
        family=lambda: family,
        arguments=(*declared.arguments, Scalar("factor", "float")),
        parameters=(*declared.parameters, "factor"),
        entry="added",
    )


@pytest.mark.parametrize("default", [math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-320, 1e300, 2, 0.1])
def test_a_default_may_be_any_float(operators: dict[str, Operator], default: float) -> None:
    arguments = (Array("x", "T", "*s"), Scalar("factor", "float", default), Scalar("more", "int", 7))
    kernels: list[Any] = []
    family = CpuFamily({"square": lambda read, x, y, n, factor, more: kernels.append((factor, more))})
    declared = without_gradients(
        operators, arguments=arguments, family=lambda: family, parameters=(*operators["square"].parameters, "more")
    )
    operator = torch_operator(declared)
    for args, kwargs in (
        ((), {}),
        ((), {"more": 7}),
        ((), {"more": 8}),
        ((default, 8), {}),
        ((-0.0,), {}),
        ((0.0,), {}),
    ):
        for _ in range(2):
            operator(rows(), *args, **kwargs)
            factor, more = args[0] if args else default, (args[1:] or [kwargs.get("more", 7)])[0]
            assert kernels[-1][1] == more
            assert repr(float(kernels[-1][0])) == repr(float(factor))
    assert operator(torch.empty(3, device="meta")).shape == (3,)


def test_gradients_know_a_default_that_no_schema_holds(operators: dict[str, Operator]) -> None:
    arguments = (Array("x", "T", "*s"), Scalar("factor", "float", -0.0))
    named = f"{operators['square'].namespace}::zero"
    square = torch_operator(dataclasses.replace(operators["square"], qualname=named, arguments=arguments))
    x = torch.ones(3, requires_grad=True)
    found = torch.autograd.grad(square(x).sum(), x)[0]
    assert [math.copysign(1, value) for value in found.tolist()] == [-1.0] * 3


@pytest.mark.parametrize("default", ["", 'say "a\\b"\n', "é"])
def test_a_flag_of_text_may_have_any_default(operators: dict[str, Operator], default: str) -> None:
    reduce_rows = operators["reduce_rows"]
    flag = dataclasses.replace(reduce_rows.arguments[2], default=default)
    seen: list[str] = []

    def configure(case: Any) -> dict[str, object]:
        seen.append(case.reduction)
        return {"data_type": case.T, "reduction": "sum"}

    declared = dataclasses.replace(reduce_rows, arguments=(*reduce_rows.arguments[:2], flag), configuration=configure)
    torch_operator(declared)(rows())
    assert seen == [default]


@pytest.mark.parametrize("default", [2**63, -(2**63) - 1])
def test_a_default_that_no_kernel_takes_is_refused(operators: dict[str, Operator], default: int) -> None:
    with raises(OperatorError, "operator-argument", "factor", str(default)):
        without_gradients(operators, arguments=(Array("x", "T", "*s"), Scalar("factor", "int", default)))
