"""C++ types in one spelling: which of them are the same type."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.type_spelling import canonical_spelling, is_same_type
from tests.base.test_types import ALIASES


@pytest.mark.parametrize("group", ALIASES)
def test_aliases_are_one_type(group: tuple[str, ...]) -> None:
    assert all(is_same_type(alias, group[0]) for alias in group)


def test_other_scalars_are_other_types() -> None:
    assert not any(is_same_type(left[0], right[0]) for left, right in combinations(ALIASES, 2))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("const float*", "float const*"),
        ("const float* __restrict__", "float const*"),
        ("const float *__restrict__", "float const*"),
        ("float* const", "float*"),
        ("const int", "int"),
        ("const uint32_t*", "unsigned int const*"),
        ("int64_t const*", "long const*"),
        ("float const* const*", "const float* const*"),
        ("Filter", "ns::Filter"),
        ("const Filter*", "a::b::Filter const*"),
        ("struct Filter*", "Filter*"),
        ("const my_struct*", "my_struct const*"),
        ("my_enum const*", "const my_enum*"),
        ("Box<float, 4>", "Box<float,4>"),
        ("Box<float*>", "Box< float * >"),
        ("const Box<float>*", "Box<float> const*"),
        ("const Box<float const*>*", "Box<float const*> const*"),
        ("Box<Box<uint32_t> >", "Box<Box<unsigned int>>"),
        ("const float&", "float const&"),
    ],
)
def test_spellings_of_one_type(a: str, b: str) -> None:
    assert is_same_type(a, b)
    assert is_same_type(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("float*", "float const*"),
        ("float*", "float"),
        ("float**", "float*"),
        ("float**", "float* const*"),
        ("float const**", "float* const*"),
        ("float*", "double*"),
        ("int", "unsigned int"),
        ("Filter", "OtherFilter"),
        ("Box<float*>", "Box<float*, int>"),
        ("Box<float*>", "Box<float const*>"),
        ("Box<float const*>", "Box<float> const*"),
        ("Box<float>*", "Box<float*>"),
    ],
)
def test_different_types(a: str, b: str) -> None:
    assert not is_same_type(a, b)
    assert not is_same_type(b, a)


@pytest.mark.slow
@given(st.recursive(
    st.sampled_from(["float", "unsigned int", "Filter", "Box<float, int>", "ns::T"]),
    lambda inner: st.tuples(inner, st.sampled_from(["*", " const*", "&"])).map("".join),
))  # fmt: skip
def test_a_spelling_spells_itself(type_name: str) -> None:
    assert canonical_spelling(canonical_spelling(type_name)) == canonical_spelling(type_name)
    assert is_same_type(type_name, type_name)


def test_types_of_any_depth_are_compared() -> None:
    deep = "B<" * 2000 + "float" + ">" * 2000
    assert is_same_type(deep, deep.replace(">>", "> >"))
    assert not is_same_type(deep, deep.replace("float", "int"))
