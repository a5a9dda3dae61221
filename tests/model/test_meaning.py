"""On which macros the declarations of headers depend."""

from __future__ import annotations

import pytest

from jitlto.model.meaning import questions

ASKED = [
    "#if ASKED > 1\nint x;\n#endif",
    "#ifdef ASKED\nint x;\n#endif",
    "#if 1\n#elif defined(ASKED)\nint x;\n#endif",
    "float a[(ASKED) ? 2 : 1];",
    "constexpr int n{ASKED};",
    "struct alignas(ASKED) S { float x; };",
    "int f(int a = (ASKED));",
    "int f(\n#if ASKED\n int\n#else\n float\n#endif\n x);",
    "constexpr int f() { return ASKED; }",
    "struct S { static constexpr int f() {\n#if ASKED\nreturn 1;\n#endif\n} };",
    "inline auto f() { return ASKED; }",
    "inline decltype(auto) f() { return ASKED; }",
    "constexpr auto f = [] { return ASKED; };",
    "enum { n = ASKED };",
    "#define N ASKED\nfloat a[N];",
    "#define N(x) ((x) + ASKED)\nfloat a[N(1)];",
    "#if ASKED\n#define N 1\n#else\n#define N 2\n#endif\nfloat a[N];",
    '#if ASKED\n#include "wide.cuh"\n#endif',
    "#pragma pack(ASKED)",
    "#if ASKED\n#error\n#elif defined(OTHER)\nint x;\n#endif",
    "__device__ int n() { return 1; }\n#if ASKED\nint x;\n#endif",
]
PASSED_OVER = [
    '// ASKED\nconst char* text = "ASKED";',
    "#if ASKED\n#error\n#endif\nint x;",
    "#ifdef ASKED\n#if ASKED < 700\n#error\n#endif\n#endif\nint x;",
    "#if ASKED\nint x;\n#else\n#error\n#endif",
    "__device__ int f() { return ASKED; }",
    "template <class T = int> __device__ T f(T x) noexcept(true) {\n#if ASKED\nreturn x;\n#endif\n}",
    "struct S { int a; __device__ S() : a{ASKED} { a = ASKED; } };",
    "struct S { __device__ S& operator=(const S&) { return ASKED; } };",
    "inline auto f() -> int { return ASKED; }",
    "#define N ASKED\n__device__ int f() { return N; }",
    "#if ASKED\n#define N 1\n#endif\n__device__ int f() { return N; }",
    "#if ASKED\n#include <cuda/std/cstdint>\n#else\n#include <cstdint>\n#endif\nint x;",
    "#if ASKED\n#endif\n#undef N",
]


@pytest.mark.parametrize("text", ASKED)
def test_what_declarations_may_depend_on(text: str) -> None:
    assert "ASKED" in {question.word for question in questions({"f.cuh": text.encode()})}


@pytest.mark.parametrize("text", PASSED_OVER)
def test_what_they_do_not(text: str) -> None:
    assert "ASKED" not in {question.word for question in questions({"f.cuh": text.encode()})}


def test_macros_of_one_header_are_used_in_another() -> None:
    headers = {"a.cuh": b"#define N ASKED\n", "b.cuh": b"float a[N];\n"}
    assert {question.word: header for question, header in questions(headers).items()} == {
        "N": "b.cuh",
        "a": "b.cuh",
        "ASKED": "a.cuh",
    }


def test_a_header_of_the_family_is_no_toolkits() -> None:
    text = {"f.cuh": b"#if ASKED\n#include <wide.cuh>\n#endif\n"}
    assert not questions(text)
    assert [question.word for question in questions(text | {"wide.cuh": b""})] == ["ASKED"]


def test_definedness_and_value_are_told_apart() -> None:
    text = b'#if defined(A) && B > 1 && __has_include("c.cuh")\nint x = D;\n#endif\n'
    kinds = {(question.kind, question.word, question.is_condition) for question in questions({"f.cuh": text})}
    assert {
        ("defined", "A", True),
        ("value", "B", True),
        ("has", '__has_include("c.cuh")', True),
        ("value", "D", False),
    } <= kinds
