"""What in a header declares something, and what is in bodies alone."""

from __future__ import annotations

import pytest

from jitlto.compile.heads import heads
from jitlto.compile.tokens import TOKEN, skip


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
