"""An operator passes to the kernel what follows from the declaration."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto import Array, Flag, Launch, Operator, Output, Scalar
from jitlto.frameworks.parts import Argument
from tests.support.operators import CpuBackend, CpuFamily

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from jitlto.frameworks.torch_kernel import Implementation  # noqa: E402

ARRAY = Array("x", "float32", "n")


@st.composite
def declarations(draw: st.DrawFn) -> tuple[list[Argument], int]:
    """Arguments of every kind in any order that a signature may have, and a number of outputs."""
    needed: list[Argument] = [ARRAY]
    optional: list[Argument] = []
    for number in range(draw(st.integers(0, 5))):
        name = f"p{number}"
        kind = draw(st.sampled_from(["array", "optional", "scalar", "flag"]))
        mutated, has_default = draw(st.booleans()), draw(st.booleans())
        if kind == "array":
            needed.append(Array(name, "T", draw(st.sampled_from(["n", "*s", "n n", ""])), mutated))
        elif kind == "optional":
            optional.append(Array(name, "int64", "k", mutated, optional=True))
        elif kind == "scalar":
            (optional if has_default else needed).append(Scalar(name, "int", *([7] if has_default else [])))
        else:
            (optional if has_default else needed).append(Flag(name, "str", *(["a"] if has_default else [])))
    return [*draw(st.permutations(needed)), *draw(st.permutations(optional))], draw(st.integers(1, 3))


def _operator(family: CpuFamily, arguments: list[Argument], outputs: int, parameters: list[Any]) -> Operator:
    flags = [argument.name for argument in arguments if isinstance(argument, Flag)]
    return Operator(
        "ns::op",
        lambda: family,  # type: ignore[arg-type, return-value]
        arguments,
        [Output(f"o{number}", "T" if number else "float32", "n") for number in range(outputs)],
        lambda case: {name: getattr(case, name) for name in flags},
        lambda case: Launch((case.n, 2), 32, shared_memory=16 * case.n),
        parameters,
        {"T": ("float32", "float64")},
    )


@pytest.mark.slow
@given(declarations(), st.data())
def test_known_calls_launch_as_new_ones_do(declared: tuple[list[Argument], int], data: st.DataObject) -> None:
    arguments, outputs = declared
    if not any(isinstance(argument, Array) and argument.dtype == "T" for argument in arguments):
        outputs = 1  # nothing says what T is
    flags = {argument.name for argument in arguments if isinstance(argument, Flag)}
    names = [argument.name for argument in arguments] + [f"o{number}" for number in range(outputs)]
    passed: list[Any] = [name for name in names if name not in flags]
    parameters = data.draw(st.permutations([*passed, "n", 5, None, lambda case: case.n + 1]))
    family = CpuFamily({None: lambda *_: None})
    implementation = Implementation(_operator(family, arguments, outputs, parameters), CpuBackend())
    shapes = {"n": (3,), "*s": (2, 4), "n n": (3, 3), "": (), "k": (6,)}
    given_values: dict[str, Any] = {}
    for argument in arguments:
        if isinstance(argument, Array):
            dtype = {"T": torch.float64, "int64": torch.int64, "float32": torch.float32}[argument.dtype]
            is_absent = argument.optional and data.draw(st.booleans())
            given_values[argument.name] = None if is_absent else torch.zeros(shapes[argument.shape], dtype=dtype)
        else:
            given_values[argument.name] = 11 if isinstance(argument, Scalar) else "b"
    made = []
    for _ in range(2):
        found = implementation.call(*given_values.values())
        made.append(dict(enumerate(found if isinstance(found, tuple) else (found,))))
    assert len(family.launches) == 2
    for (*how, values, attributes), results in zip(family.launches, made, strict=True):
        assert how == [None, dict.fromkeys([a.name for a in arguments if isinstance(a, Flag)], "b"), 1, (3, 2), 32]
        assert attributes == {"shared_memory": 48}
        everything = given_values | {f"o{number}": result for number, result in results.items()} | {"n": 3}
        for parameter, value in zip(parameters, values, strict=True):
            expected = 4 if callable(parameter) else everything.get(parameter, parameter)
            pointers = [each.data_ptr() if hasattr(each, "data_ptr") else each for each in (value, expected)]
            assert pointers[0] == pointers[1], parameter
