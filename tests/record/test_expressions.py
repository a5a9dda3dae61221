"""Expressions of launch choices and conditions: what they mean, and that nothing else is understood."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.record.expressions import ExpressionError, evaluate, names_in, parse

VALUES: dict[str, int | str] = {"rows": 1000, "block": 256, "kind": "c2c"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("256", 256),
        ("cdiv(rows, block)", 4),
        ("(rows + block - 1) // block * 2 % 5", 3),
        ("max(128, rows // 16), 2", (128, 2)),
        ("rows % 8 == 0 and block <= 1024", 1),
        ("0 < block < 256 or not rows", 0),
        ("kind == 'c2c'", 1),
        ("-block", -256),
        ("rows == 1000 or rows // 0", 1),
        ("rows < 1000 and rows // 0", 0),
    ],
)
def test_what_they_mean(text: str, expected: object) -> None:
    assert evaluate(text, VALUES) == expected


@pytest.mark.parametrize(
    "text",
    ["", "rows rows", "rows ** 9", "rows / 2", "1.5", "True", "__import__('os')", "rows.real", "[rows]", "f'{rows}'",
     "open(rows)", "(lambda: 1)()", "rows if block else 2", "cdiv(rows)", "cdiv(rows, 2, 3)", "min(1)", "min(a=1)",
     "x" * 301, "rows << 60", "b'1'", "*rows, 1", "rows := 2"],
)  # fmt: skip
def test_nothing_else_is_understood(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text)


@pytest.mark.parametrize("text", ["rows // 0", "rows % (block - 256)", "missing", "kind + 1", "rows < kind", "-kind",
                                  " * ".join(["9999999999"] * 9), "min(kind, 1)"])  # fmt: skip
def test_what_has_no_value_is_one_kind_of_error(text: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(text, VALUES)


def test_its_names() -> None:
    assert names_in("cdiv(rows, block) * min(a, 2)") == {"rows", "block", "a"}


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_a_quotient_is_rounded_up(a: int, b: int) -> None:
    value = evaluate("cdiv(a, b)", {"a": a, "b": b})
    assert isinstance(value, int)
    assert (value - 1) * b < a <= value * b


@given(st.text("abcdrowsblk0123456789 +-*/%()<>=,.'\"[]{}:!&|~^@\n", max_size=60))
def test_any_text_has_a_value_or_is_that_error(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        evaluate(text, VALUES)
