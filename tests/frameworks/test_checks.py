"""A declaration that contradicts itself is refused when it is made, with what is wrong with it."""

from typing import Any

import pytest

from jitlto import Array, Backward, Flag, Launch, Operator, Output, Scalar
from jitlto.base.errors import OperatorError
from tests.support.errors import raises
from tests.support.operators import CpuFamily, declare

X = Array("x", "float32", "n")
Y = Output("y", "float32", "n")
DECLARED = declare(CpuFamily, "checked")


TWO_OUTPUTS = Operator(
    "ns::two", CpuFamily, (X,), (Y, Output("z", "float32", "n")), lambda _: {}, lambda _: Launch(1, 1), ("x", "y", "z")
)


def make(*arguments: Any, outputs: Any = (Y,), parameters: Any = ("x", "y"), **more: Any) -> Operator:
    return Operator(
        more.pop("qualname", "ns::op"),
        CpuFamily,
        arguments or (X,),
        outputs,
        lambda _: {},
        lambda _: Launch(1, 1),
        parameters,
        **more,
    )


def test_a_declaration_without_mistakes_is_taken() -> None:
    operator = make(
        X, Scalar("factor", "float", 2), Flag("mode", "str", "a"), parameters=("x", "y", "n", "factor", 1.5)
    )
    assert (operator.namespace, operator.name) == ("ns", "op")
    assert [part.name for part in (*operator.arrays, *operator.flags)] == ["x", "mode"]


@pytest.mark.parametrize("name", ["op", "a::b::c", "a::", "a::b-c", "1a::b", "au::größe"])
def test_the_name_has_a_namespace(name: str) -> None:
    with raises(OperatorError, "operator-name", name):
        make(qualname=name)


@pytest.mark.parametrize(
    ("arguments", "more", "code", "names"),
    [
        ((X, X), {}, "operator-name", ["x"]),
        ((X, Scalar("y", "int")), {}, "operator-name", ["y"]),
        ((X, Scalar("n", "int")), {}, "operator-name", ["n"]),
        ((X, Scalar("given", "int")), {}, "operator-name", ["given"]),
        ((X, Array("z", "float32", "*n")), {}, "operator-name", ["n"]),
        ((Array("x", "T", "n"),), {}, "operator-argument", ["x", "T"]),
        ((Array("x", "T", "n"),), {"dtypes": {"T": ("float31",)}}, "operator-argument", ["float31"]),
        ((Array("x", "T", "n"),), {"dtypes": {"T": ()}}, "operator-argument", ["T"]),
        ((Array("x", "float32", "n"),), {"dtypes": {"float32": ("float64",)}}, "operator-argument", ["float32"]),
        ((X, Scalar("factor", "str")), {}, "operator-argument", ["factor", "str"]),
        ((X, Flag("mode", "float")), {}, "operator-argument", ["mode", "float"]),
        ((X, Flag("mode", "int", "1")), {}, "operator-argument", ["mode", "'1'"]),
        ((X, Scalar("factor", "int", True)), {}, "operator-argument", ["factor", "True"]),
        ((X, Scalar("factor", "int", 1), Flag("mode", "int")), {}, "operator-argument", ["mode", "factor"]),
        ((Array("x", "float32", "n", optional=True),), {}, "operator-argument", []),
        ((X,), {"outputs": (), "parameters": ("x",)}, "operator-output", []),
        ((X,), {"parameters": ("x", [])}, "operator-parameter", ["[]"]),
    ],
)  # fmt: skip
def test_contradictions_are_refused(arguments: Any, more: Any, code: str, names: list[str]) -> None:
    with raises(OperatorError, code, *names):
        make(*arguments, **more)


@pytest.mark.parametrize(
    ("backward", "names"),
    [
        (Backward(DECLARED["square_backward"], ("grad_z", "x", "factor"), ("x",)), ["grad_z"]),
        (Backward(DECLARED["square_backward"], ("grad_y", "x", "factor"), ("factor",)), ["factor"]),
        (Backward(DECLARED["square_backward"], ("grad_y", "x"), ("x",)), ["2", "3"]),
        (Backward(DECLARED["square_backward"], ("grad_y", "x", "factor"), ()), ["0", "1"]),
        (Backward(TWO_OUTPUTS, ("x",), ("x", "x")), ["1", "2"]),
        (Backward(DECLARED["accumulate"], ("grad_y", "x"), ()), ["mutates"]),
    ],
)
def test_a_backward_that_does_not_fit_is_refused(backward: Backward, names: list[str]) -> None:
    with raises(OperatorError, "operator-backward", *names):
        make(X, Scalar("factor", "float"), backward=backward)


def test_an_operator_with_gradients_mutates_nothing() -> None:
    with raises(OperatorError, "operator-backward", "mutates"):
        make(Array("x", "float32", "n", mutated=True), backward=Backward(DECLARED["square_backward"], (), ()))


@pytest.mark.parametrize("parts", [{"arguments": ("x",)}, {"outputs": ("y",)}, {"qualname": 3}])
def test_parts_of_another_type_are_type_errors(parts: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        make(*parts.pop("arguments", ()), **parts)
