"""Messages show both sides of an interface: what it declares and what a source has, with the places."""

from __future__ import annotations

import pytest

from jitlto.base.errors import BuildError, CompileError
from tests.build.test_interfaces import FINE, FLOAT, family
from tests.conftest import BuildFamily
from tests.support.errors import raises


def test_a_definition_with_another_result_is_shown_beside_its_declaration(build_family: BuildFamily) -> None:
    files = family(FLOAT, "__device__ int activation(float x) { return 1; }")
    hint = f"activation.cuh:3 declares `{FLOAT}`; relu.cuh:1 has `__device__ int activation(float x)`"
    with raises(CompileError, "compile", "activation", hint=hint):
        build_family(files)


@pytest.mark.parametrize(
    ("declared", "defined"),
    [
        ("extern __device__ int table[4];", "__device__ float table[4] = {1, 2, 3, 4};"),
        ("__device__ int weigh(int x);", "__device__ float weigh(int x) { return x; }"),
    ],
)
def test_of_several_declarations_that_of_the_same_name_is_shown(
    build_family: BuildFamily, declared: str, defined: str
) -> None:
    files = family(f"{FLOAT}\n{declared}", f"{FINE}\n{defined}")
    form = defined.partition(" =")[0].partition(" {")[0].rstrip(";")
    with raises(CompileError, "compile", hint=f"activation.cuh:4 declares `{declared}`; relu.cuh:2 has `{form}`"):
        build_family(files)


def test_a_call_of_what_a_source_declares_itself_is_shown_beside_the_interface(build_family: BuildFamily) -> None:
    both = FINE + "\n__device__ float activation(int x) { return x; }"
    files = family(FLOAT, both, call="*x = activation(3);")
    files["kern.cu.jinja"] = "__device__ float activation(int x);\n" + files["kern.cu.jinja"]
    places = f"activation.cuh:3 declares `{FLOAT}`", "kern[].cu:1 has `__device__ float activation(int x)`"
    with raises(BuildError, "build-interface-undeclared", "activation(int)", *places):
        build_family(files)
