"""Causes: what differs only by what varies between fragments is one; the most frequent comes first."""

from __future__ import annotations

import pytest

from jitlto.build.causes import group_by_cause, name_folder, value_eraser
from jitlto.record.fragment import Fragment, FragmentKey, Role, Symbol, SymbolKind


def test_equal_signatures_are_one_cause_the_most_frequent_first() -> None:
    causes = group_by_cause(["b1", "a1", "c1", "a2", "c2"], lambda item: item[0])
    assert [cause.members for cause in causes] == [("a1", "a2"), ("c1", "c2"), ("b1",)]
    assert [(cause.first, len(cause)) for cause in causes] == [("a1", 2), ("c1", 2), ("b1", 1)]
    assert group_by_cause([], str) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no operator + for float", "no operator + for double"),
        ("f(euclidean, 4)", "f(cosine, 16)"),
        ("x is 0x1fU", "x is 3.5e-2f"),
        ("a  b", "a b"),
    ],
)
def test_values_types_numbers_and_white_space_are_erased(one: str, other: str) -> None:
    erase = value_eraser(["euclidean", "cosine"])
    assert erase(one) == erase(other)


def test_a_short_value_is_erased_as_a_word_alone() -> None:
    erase = value_eraser(["a"])
    assert erase("a + bar") == erase(" + bar") != erase("+ br")


def test_keys_configurations_and_symbols_are_folded() -> None:
    symbols = tuple(Symbol(name, SymbolKind.FUNCTION, "") for name in ("_Z2opIfEvT_", "_Z2opIdEvT_"))
    fragment = Fragment(FragmentKey("f", "g"), Role.DEVICE, "", (), symbols, (), ())
    fold = name_folder([fragment])
    one = fold("f/g[t=float] requires void op<float>(float) with t=float, 3 times")
    other = fold("f/g[t=double] requires _Z2opIdEvT_ with t=double, 12 times")
    assert one == other
    assert fold("f/other[] requires op") != fold("f/g[] requires op")
