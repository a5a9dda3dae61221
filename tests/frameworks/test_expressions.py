"""Epilogues by hand: expressions become sources of a plan, or one error. No GPU."""

from dataclasses import replace
from typing import Any

import pytest

from docs.examples.operators import declare_transform
from jitlto import Array, Launch, Operator, Output
from jitlto.base.errors import OperatorError
from jitlto.frameworks.fit import check_call
from jitlto.frameworks.parts import Seam
from jitlto.runtime.family import KernelFamily
from tests.support.errors import raises

_X = ((10, 64), "complex64")
_TRANSFORM = declare_transform()


def _plan(operator: Operator, *given: Any) -> Any:
    return check_call(operator, [_X, *given, "forward"])


def _resolved(operator: Operator, *given: Any) -> Any:
    return operator.resolve(operator.bind([_X, *given, "forward"]))


def test_an_expression_becomes_an_input_of_the_plan(fft: KernelFamily) -> None:
    declared = declare_transform(fft)
    made = declared.with_epilogue("v * scale + bias[col]", scale="float", bias="float32")
    assert [argument.name for argument in made.arguments] == ["x", "scale", "bias", "direction"]
    plan, plain = _plan(made, 0.5, ((64,), "float32")), _plan(declared)
    assert plan.link(arch="sm_90").cubin != plain.link(arch="sm_90").cubin
    digests = [_plan(declared.with_epilogue(f"v * {n}")).for_arch("sm_90").digest for n in (2, 2, 3)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("expression", "inputs", "given"),
    [
        ("-v", {}, []),
        ("v if a[row] > 0 else v * 2", {"a": "float64"}, [((10,), "float64")]),
        ("v + z[row, col]", {"z": "complex64"}, [((10, 64), "complex64")]),
        ("v * a", {"a": "bfloat16"}, [((1,), "bfloat16")]),
        ("v * exp(silu(a[col]) % 2)", {"a": "float16"}, [((64,), "float16")]),
        ("v * a ** 0.5 + k", {"a": "float", "k": 2.5}, [0.25]),
    ],
)
def test_inputs_are_read_by_element_row_column_or_once(
    fft: KernelFamily, expression: str, inputs: Any, given: list[Any]
) -> None:
    made = declare_transform(fft).with_epilogue(expression, **inputs)
    assert _plan(made, *given).link(arch="sm_90").cubin


def test_a_function_stands_before_what_the_seam_says() -> None:
    made = _TRANSFORM.with_epilogue("v * a[row] + b", a="float32", b="float", dtype="complex128")
    call = _resolved(made, ((10,), "float32"), 0.5)
    assert (call.results[0][1], call.parameters[-1]) == ("complex128", ((1, 2), None))
    assert made.results(made.bind([_X, ((10,), "float32"), 0.5, "forward"]))[0][1] == "complex128"
    (name, text), *others = call.sources.items()
    assert (name, others) == ("fft_store.cu", [])
    assert text.index("namespace fused") < text.index("void store(") < text.index("fft_store(float2*")


def test_one_array_is_passed_by_itself_and_several_inputs_by_a_table() -> None:
    def passed(expression: str, *given: Any, **inputs: str) -> Any:
        return _resolved(_TRANSFORM.with_epilogue(expression, **inputs), *given).parameters[-1][0]

    array = ((1,), "float32")
    assert passed("v * 2") is None
    assert passed("v * a", array, a="float32") == 1
    assert passed("v * a", 0.5, a="float") == (1,)
    assert passed("v * a * b", 0.5, array, a="float", b="float32") == (1, 2)


@pytest.mark.parametrize(
    ("expression", "inputs", "hint"),
    [
        ("v +", {}, "write one"), ("tanj(v)", {}, "'tan"), ("v * skale", {"scale": "float"}, "'scale'"),
        ("v", {"scale": "float"}, "leave it out"), ("a[row] + a[col] + v", {"a": "float32"}, "two names"),
        ("v + a[k]", {"a": "float32"}, "x[row]"), ("v * a", {"a": "flaot32"}, "dtypes"), ("v & 1", {}, "functions"),
        ("floor(v)", {}, "another"), ("a[row] * v", {"a": "float"}, "brackets"), ("v.real", {}, "functions"),
        ("v[row, col]", {}, "brackets"), ("v * b[col]", {}, "say what it is"),
        ("gelu()", {}, "another"), ("v * a", {"a": None}, "float32"), ("v + 99999999999999999999", {}, "another"),
        ("-" * 3000 + "v", {}, ""), ("v * row", {"row": "float32"}, "another name"), ("abs(v)", {}, "another"),
    ],
)  # fmt: skip
def test_what_cannot_be_computed_is_refused(expression: str, inputs: Any, hint: str) -> None:
    with raises(OperatorError, "operator-epilogue", where="transform", hint=hint):
        _resolved(_TRANSFORM.with_epilogue(expression, **inputs))


def test_inputs_of_another_size_are_refused() -> None:
    made = _TRANSFORM.with_epilogue("v * a[col]", a="float32")
    for wrong in ((10,), (8, 8), (64, 1)):
        with raises(OperatorError, "operator-call", str(wrong), hint="(10, 64)"):
            _resolved(made, (wrong, "float32"))
    assert _resolved(made, ((1, 64), "float32")).sources


def test_a_seam_that_does_not_fit_its_operator_is_refused() -> None:
    declared = _TRANSFORM
    with raises(OperatorError, "operator-epilogue", "no epilogue"):
        replace(declared, epilogue=None, parameters=(*declared.parameters[:-1], None)).with_epilogue("v")
    with raises(OperatorError, "operator-epilogue", "no such parameter"):
        replace(declared, parameters=(*declared.parameters[:-1], None))
    with raises(OperatorError, "operator-prologue", "'y'"):
        replace(declared, prologue=Seam("fft_load", "y", ""))
    with raises(OperatorError, "operator-epilogue", "arrays"):
        names = [f"a{number}" for number in range(9)]
        declared.with_epilogue(" + ".join(["v", *names]), **dict.fromkeys(names, "float32"))


def test_an_operator_of_one_array_and_no_seam_is_as_before() -> None:
    family: Any = lambda: None  # noqa: E731
    plain = Operator("a::b", family, (Array("x", "float32", "n"),), (Output("y", "float32", "n"),),
                     lambda case: {}, lambda case: Launch(1, 1), ("x", "y"))  # fmt: skip
    call = plain.resolve(plain.bind([((3,), "float32")]))
    assert (call.sources, call.parameters) == ({}, ((0, None), (1, None)))
