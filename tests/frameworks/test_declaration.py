"""A declaration says what follows from a call's shapes, dtypes and flags: results, configuration, launch, arguments."""

from typing import Any

import pytest

from jitlto import Array, KernelFamily, Launch, Operator, Output, Scalar
from jitlto.base.errors import OperatorError
from tests.support.errors import raises
from tests.support.operators import CpuFamily, declare
from tests.support.process import output_of

DECLARED = declare(CpuFamily, "declared")


def test_a_call_is_resolved_from_its_case() -> None:
    operator = DECLARED["reduce_rows"]
    case = operator.bind([((100, 8), "float64"), ((8,), "bool"), "largest"])
    assert (case.m, case.n, case.T, case.reduction, case.given) == (100, 8, "float64", "largest", {"bits"})
    call = operator.resolve(case)
    assert call.results == (((100,), "float64"), ((100,), "int64"))
    assert call.configuration == {"data_type": "double", "reduction": "largest"}
    assert call.launch == Launch(grid=2, block=64)
    assert call.parameters == ((0, None), (1, None), (3, None), (4, None), (None, 100), (None, 8))


def test_an_array_that_is_not_given_is_a_null_pointer() -> None:
    operator = DECLARED["reduce_rows"]
    case = operator.bind([((100, 8), "float32"), None, "sum"])
    assert case.given == frozenset()
    assert operator.resolve(case).parameters[1] == (None, None)


def test_nothing_is_launched_on_an_empty_grid() -> None:
    operator = DECLARED["square"]
    call = operator.resolve(operator.bind([((0, 3), "float32"), 1.0]))
    assert call.launch is None
    assert call.results == (((0, 3), "float32"),)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([((4,), "float32"), None, "sum"], ["x", "dimensions"]),
        ([((4, 3), "float16"), None, "sum"], ["x", "float16", "float32 or float64"]),
        ([((4, 3), "float32"), ((4,), "bool"), "sum"], ["bits", "dimension n"]),
        ([((4, 3), "float32"), ((3,), "uint8"), "sum"], ["bits", "uint8", "bool"]),
        ([None, None, "sum"], ["x", "missing"]),
    ],
)
def test_what_does_not_fit_is_named(values: list[Any], names: list[str]) -> None:
    with raises(OperatorError, "operator-call", *names, where="declared::reduce_rows"):
        DECLARED["reduce_rows"].bind(values)


def test_arrays_of_one_dtype_variable_have_one_dtype() -> None:
    with raises(OperatorError, "operator-call", "x", "float64", "float32"):
        DECLARED["accumulate"].bind([((4,), "float32"), ((4,), "float64")])


def test_a_name_that_a_case_does_not_have_is_an_error_that_lists_those_it_has() -> None:
    case = DECLARED["square"].bind([((4,), "float32"), 1.0])
    with raises(OperatorError, "operator-name", "rows", where="declared::square", hint="T, given, s"):
        _ = case.rows


def _operator(**changes: Any) -> Operator:
    parts: dict[str, Any] = {
        "qualname": "ns::op",
        "family": CpuFamily,
        "arguments": (Array("x", "float32", "n"), Scalar("factor", "float")),
        "outputs": (Output("y", "float32", "n"),),
        "configuration": lambda _: {},
        "launch": lambda case: Launch(case.n, 32),
        "parameters": ("x", "y", "n", "factor"),
    }
    return Operator(**(parts | changes))


def test_functions_that_return_something_else_are_errors_of_the_call() -> None:
    for changes in ({"launch": lambda _: (1, 32)}, {"outputs": (Output("y", lambda _: "n", "n"),)}):
        operator = _operator(**changes)
        with raises(OperatorError, "operator-call", where="ns::op"):
            operator.resolve(operator.bind([((4,), "float32"), 1.0]))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"outputs": (Output("y", lambda _: "float", "n"),)}, "float"),
        ({"outputs": (Output("y", "half", "n"),)}, "half"),
        ({"outputs": (Output("y", lambda _: None, "n"),)}, "None"),
        ({"outputs": (Output("y", "float32", "m"),)}, "m"),
        ({"parameters": ("x", "z")}, "z"),
        (
            {
                "arguments": (Array("x", "float32", "n"), Array("z", "int8", "k", optional=True)),
                "parameters": ("x", "k"),
            },
            "k",
        ),
    ],
)
def test_what_a_call_does_not_have_is_named(changes: dict[str, Any], name: str) -> None:
    operator = _operator(**changes)
    with raises(OperatorError, "operator-name", repr(name), where="ns::op"):
        operator.resolve(operator.bind([((4,), "float32"), None]))


def test_numbers_and_functions_are_passed_by_value() -> None:
    operator = _operator(parameters=("x", "y", 7, None, lambda case: case.n + 1))
    call = operator.resolve(operator.bind([((4,), "float32"), 1.0]))
    assert call.parameters[2:] == ((None, 7), (None, None), (None, 5))


def test_a_family_that_a_function_returns_is_asked_for_once_when_it_is_needed() -> None:
    made: list[CpuFamily] = []
    operator = _operator(family=lambda: made.append(CpuFamily()) or made[0], entry="square")
    assert made == []
    assert operator.loaded is operator.loaded is made[0]
    assert len(made) == 1


def test_the_launcher_of_a_call_is_that_of_its_configuration() -> None:
    family = CpuFamily()
    operator = declare(lambda: family, "launched")["reduce_rows"]
    call = operator.resolve(operator.bind([((0, 3), "float32"), None, "sum"]))
    operator.launcher(call)(1, 1, 1, 0, None, 0, 0, 0, 3)
    assert family.launches[0][:2] == ("reduce_rows", {"data_type": "float", "reduction": "sum"})


def test_a_family_may_be_given_itself(mini: KernelFamily) -> None:
    assert _operator(family=mini).loaded is mini


@pytest.mark.slow
def test_a_declaration_imports_neither_torch_nor_jax() -> None:
    code = """
import json, sys
import jitlto
from jitlto import Array, Backward, Flag, Launch, Operator, Output, Scalar
Operator("ns::op", "family", (Array("x", "float32", "n"),), (Output("y", "float32", "n"),), dict, dict, ())
print(json.dumps(sorted({"torch", "jax", "jaxlib"} & set(sys.modules))))
"""
    assert output_of(code).strip() == "[]"
