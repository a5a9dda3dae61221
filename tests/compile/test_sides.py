"""Messages show both sides of an interface: what it declares and what a source has, with the places."""

import pytest

from jitlto.base.errors import CompileError
from tests.build.test_interfaces import FINE, FLOAT, family
from tests.conftest import BuildFamily
from tests.support.errors import raises


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
    notes = f"activation.cuh:4: declares `{declared}`", f"relu.cuh:2: has `{form}`"
    with raises(CompileError, "compile", *notes, where="relu.cuh:2 (group activation, name=relu)"):
        build_family(files)
