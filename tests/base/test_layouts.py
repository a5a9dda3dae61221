"""C++ types: which spellings are of one type, and which types are built in."""

from itertools import combinations

import pytest

from jitlto.base.layouts import find_vector, is_built_in, is_same_type
from tests.base.test_types import ALIASES


@pytest.mark.parametrize(
    ("type_", "element", "count"),
    [
        ("struct float4", "float", 4), ("uchar1", "unsigned char", 1), ("short3", "short", 3),
        ("dim3", "unsigned int", 3),
        ("double4_16a", "double", 4), ("__half2", "__half", 2), ("nv_bfloat162", "__nv_bfloat16", 2),
        ("cuda::std::complex<double>", "double", 2), ("float2", "float", 2), ("ulong2", "unsigned long long", 2),
    ],
)  # fmt: skip
def test_vectors_have_elements(type_: str, element: str, count: int) -> None:
    found = find_vector(type_)
    assert found is not None
    assert (found[0].name, found[1]) == (element, count)
    assert is_built_in(type_)


def test_built_in_types_are_told_from_others() -> None:
    assert all(map(is_built_in, ("float", "unsigned __int128", "float const*", "T&", "cuda::std::uint32_t", "void*")))
    for type_ in ("mine::point", "float5", "half4x", "", "auto", "xfloat4", "box<int [3]>"):
        assert find_vector(type_) is None
        assert not is_built_in(type_)


# --- spelling ---


@pytest.mark.parametrize("group", ALIASES)
def test_aliases_are_one_type(group: tuple[str, ...]) -> None:
    assert all(is_same_type(alias, group[0]) for alias in group)


def test_other_scalars_are_other_types() -> None:
    assert not any(is_same_type(left[0], right[0]) for left, right in combinations(ALIASES, 2))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("const float*", "float const*"),
        ("const float *__restrict__", "float const*"),
        ("float* const", "float*"),
        ("int64_t const*", "long const*"),
        ("Filter", "ns::Filter"),
        ("const Filter*", "a::b::Filter const*"),
        ("struct Filter*", "Filter*"),
        ("Box<float, 4>", "Box<float,4>"),
        ("const Box<float>*", "Box<float> const*"),
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
        ("float**", "float* const*"),
        ("float const**", "float* const*"),
        ("Filter", "OtherFilter"),
        ("Box<float*>", "Box<float*, int>"),
        ("Box<float const*>", "Box<float> const*"),
        ("Box<float>*", "Box<float*>"),
    ],
)
def test_different_types(a: str, b: str) -> None:
    assert not is_same_type(a, b)
    assert not is_same_type(b, a)


@pytest.mark.slow
def test_types_of_any_depth_are_compared() -> None:
    deep = "B<" * 1200 + "float" + ">" * 1200
    assert is_same_type(deep, deep.replace(">>", "> >"))
    assert not is_same_type(deep, deep.replace("float", "int"))
