"""Shapes are texts of names and numbers, which are bound to an argument's own shape."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.errors import OperatorError
from jitlto.frameworks.shapes import DTYPES, DType, bind_shape, parse_shape, shape_of
from tests.support.errors import raises

SIZES = st.lists(st.integers(0, 9), max_size=4)


@pytest.mark.parametrize("text", ["1x n", "n-1", "*a *b", "*", "-3", "n,m", "*3"])
def test_a_shape_of_anything_else_than_names_and_numbers_is_refused(text: str) -> None:
    with raises(OperatorError, "operator-argument", text, where="ns::name"):
        parse_shape(text, "ns::name")


@settings(max_examples=25)
@given(SIZES, SIZES, SIZES)
def test_a_star_takes_the_dimensions_that_the_others_leave(
    before: list[int], many: list[int], after: list[int]
) -> None:
    names = [f"b{i}" for i in range(len(before))], [f"a{i}" for i in range(len(after))]
    pattern = parse_shape(" ".join([*names[0], "*many", *names[1]]), "")
    bound: dict[str, object] = {}
    assert bind_shape(pattern, (*before, *many, *after), bound) is None
    assert bound == {"many": tuple(many), **dict(zip(names[0] + names[1], before + after, strict=True))}
    assert shape_of(pattern, SimpleNamespace(**bound)) == (*before, *many, *after)


@pytest.mark.parametrize(
    ("text", "shape"),
    [("n n", (2, 3)), ("3 n", (2, 3)), ("n", (2, 3)), ("", (1,)), ("a b *c d", (1, 2)), ("*s 4", (4, 5))],
)
def test_a_shape_that_does_not_fit_is_described(text: str, shape: tuple[int, ...]) -> None:
    assert isinstance(bind_shape(parse_shape(text, ""), shape, {}), str)


def test_a_dtype_is_its_name_and_knows_its_name_in_cpp_and_its_size() -> None:
    assert {name: (DType(name).cpp, DType(name).itemsize) for name in ("float32", "float16", "complex128", "bool")} == {
        "float32": ("float", 4), "float16": ("__half", 2), "complex128": ("double2", 16), "bool": ("bool", 1),
    }  # fmt: skip
    assert all(DType(name).cpp != name or name == "bool" for name in DTYPES)
