"""Headers between their directives, and what in them declares something."""

from __future__ import annotations

import pytest

from jitlto.compile.heads import heads
from jitlto.compile.tokens import TOKEN, Stretch, is_balanced, skip, stretches


def test_lines_between_directives_end_with_a_whole_line_of_code() -> None:
    text = b"""#pragma once
struct S {  // a comment; of two words
  float x,
        y;
};
#if A > \\
    1  /* of
  two lines */
int f(
#else
)
#endif
int g();
"""
    assert list(stretches(text)) == [
        Stretch(1, "pragma", "once"),
        Stretch(2, "", "struct S {"),
        Stretch(3, "", "float x, y;"),
        Stretch(5, "", "};"),
        Stretch(6, "if", "A >     1"),
        Stretch(9, "", "int f("),
        Stretch(10, "else", ""),
        Stretch(11, "", ")"),
        Stretch(12, "endif", ""),
        Stretch(13, "", "int g();"),
    ]


@pytest.mark.parametrize(("text", "balanced"), [("f(g())", True), ('f(")")', True), ("f(", False), (")(", False)])
def test_parentheses_outside_of_literals_are_counted(text: str, balanced: bool) -> None:
    assert is_balanced(text) is balanced


def is_in_a_body(text: str) -> bool:
    tokens = TOKEN.findall(text)
    found = [head for head in heads(tokens) if head.is_definition or head.tokens[0] == "static_assert"]
    return any("ASKED" in tokens[head.begin : skip(tokens, head.end)] for head in found if head.has_body) or any(
        "ASKED" in head.tokens for head in found if not head.has_body
    )


@pytest.mark.parametrize(
    "text",
    [
        "float a[(ASKED) ? 2 : 1];",
        "constexpr int n{ASKED};",
        "struct alignas(ASKED) S { float x; };",
        "int f(int a = (ASKED));",
        "constexpr int f() { return ASKED; }",
        "struct S { static constexpr int f() { return ASKED; } };",
        "inline auto f() { return ASKED; }",
        "inline decltype(auto) f() { return ASKED; }",
        "constexpr auto f = [] { return ASKED; };",
        "enum { n = ASKED };",
        "namespace n { struct S { float a[ASKED]; }; }",
    ],
)
def test_what_declares_something(text: str) -> None:
    assert not is_in_a_body(text)


@pytest.mark.parametrize(
    "text",
    [
        "__device__ int f() { return ASKED; }",
        "template <class T = int> __device__ T f(T x) noexcept(true) { return ASKED; }",
        "struct S { int a; __device__ S() : a(ASKED) { a = ASKED; } };",
        "struct S { __device__ S& operator=(const S&) { return ASKED; } };",
        "inline auto f() -> int { return ASKED; }",
        "static_assert(ASKED >= 700, \"too old\");",
    ],
)  # fmt: skip
def test_what_does_not(text: str) -> None:
    assert is_in_a_body(text)
