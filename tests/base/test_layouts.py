"""C++ types: which spellings are of one type; layouts are the compiler's."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jitlto.base.layouts import (
    Layout,
    find_difference,
    is_same_type,
    parse_definitions,
    parse_fields,
    parse_type,
)
from tests.base.test_types import ALIASES
from tests.support.compiled import compiled
from tests.support.layouts import Declared, structures


def offsets(layout: Layout) -> list[int]:
    return [field.offset for field in layout.fields]


def ask_nvrtc(definitions: str, questions: list[str]) -> list[int]:
    """The values of constant expressions."""
    text = f"{definitions}__device__ unsigned long long answers[] = {{ {', '.join(questions)} }};\n"
    text += "__global__ void use(unsigned long long* out) { *out = answers[threadIdx.x]; }\n"
    found = re.search(r"\.b8 answers\[\d+\] = \{([^}]*)\}", compiled(text).ptx)
    assert found is not None
    data = bytes(map(int, found[1].split(",")))  # without zeros at the end
    return np.frombuffer(data.ljust(8 * len(questions), b"\0"), np.uint64).tolist()


@pytest.mark.slow
@settings(max_examples=8, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.lists(structures(), min_size=10, max_size=30))
def test_structures_lie_in_memory_as_the_compiler_lays_them_out(several: list[Declared]) -> None:
    definitions, questions, expected = "", [], []
    for number, declared in enumerate(several):
        layout = declared.layout()
        definitions += f"namespace n{number} {{\n{declared.cpp()}}}\n"
        type_ = f"n{number}::{declared.name}"
        questions += [f"sizeof({type_})", f"alignof({type_})"]
        questions += [f"__INTADDR__(&(({type_}*)0)->{field.name})" for field in layout.fields]
        expected += [layout.size, layout.alignment, *offsets(layout)]
    assert ask_nvrtc(definitions, questions) == expected


def test_offsets_follow_from_alignments() -> None:
    layout = parse_fields("s", ["char a", "double b", "int c[3]", "float4 d", "bool e", "void* f;"])
    assert offsets(layout) == [0, 8, 16, 32, 48, 56]
    assert (layout.size, layout.alignment) == (64, 16)
    outer = parse_fields("t", ["char a", "s b[2]"], {"s": layout}, alignment=32)
    assert offsets(outer) == [0, 16]
    assert (outer.size, outer.alignment) == (160, 32)
    empty = parse_fields("u", [])
    assert (empty.size, empty.alignment) == (1, 1)


@pytest.mark.parametrize(
    ("type_", "size", "alignment"),
    [
        ("float", 4, 4), ("const  float", 4, 4), ("unsigned __int128", 16, 16), ("float const*", 8, 8), ("T&", 8, 8),
        ("cuda::std::uint32_t", 4, 4), ("struct float4", 16, 16), ("float3[2][3]", 72, 4), ("float [2] [3] ", 24, 4),
        ("double4_32a", 32, 32),
        ("double4_16a", 32, 16), ("dim3", 12, 4), ("__half2", 4, 4), ("cuda::std::complex<double>", 16, 16),
        ("void (*)(int)*", 8, 8),
    ],
)  # fmt: skip
def test_known_types_have_a_layout(type_: str, size: int, alignment: int) -> None:
    layout = parse_type(type_)
    assert layout is not None
    assert (layout.size, layout.alignment) == (size, alignment)


@pytest.mark.parametrize(
    "type_", ["mine::point", "float5", "half4x", "", "float[0]", "point[3]", "auto", "xfloat4", "box<int [3]>"]
)
def test_other_types_have_none(type_: str) -> None:
    assert parse_type(type_) is None


@pytest.mark.parametrize("field", ["float", "mine::point p", "float p : 3", "int 3p", "p"])
def test_what_is_no_field_is_an_error_that_names_it(field: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(field))):
        parse_fields("s", ["int a", field])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (["int a", "int b"], ["b", "offset 4"]),
        (["float b", "int a"], ["b", "offset 0"]),
        (["int a"], ["4 bytes", "8"]),
    ],
)
def test_a_difference_is_named(fields: list[str], words: list[str]) -> None:
    expected = parse_fields("wanted", ["int a", "float b"])
    difference = find_difference(expected, parse_fields("given", fields))
    assert difference is not None
    assert all(word in difference for word in words)
    assert find_difference(expected, expected) is None


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("void* a", "unsigned long long a"), ("bool a", "unsigned char a"), ("char a", "unsigned char a"),
        ("__half a", "unsigned short a"), ("float4 a", "float a[4]"), ("float2 a[2]", "float a[4]"),
    ],
)  # fmt: skip
def test_what_is_stored_alike_is_no_difference(expected: str, actual: str) -> None:
    assert find_difference(parse_fields("s", [expected]), parse_fields("t", [actual])) is None


@pytest.mark.parametrize(
    "text", ["", "struct s { int x; }", "struct s { int x; }; more", "class s { int x; };", "struct s { t x; };"]
)
def test_what_defines_no_structure_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"definition|not known"):
        parse_definitions(text)


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


def test_types_of_any_depth_are_compared() -> None:
    deep = "B<" * 1200 + "float" + ">" * 1200
    assert is_same_type(deep, deep.replace(">>", "> >"))
    assert not is_same_type(deep, deep.replace("float", "int"))
