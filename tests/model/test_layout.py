"""Layouts: which definition can stand for which declaration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.model.fragment import Symbol, SymbolKind

powers = st.sampled_from([1, 2, 4, 8, 16])
variables = st.builds(
    lambda space, size, align: Symbol("x", SymbolKind.VARIABLE, f"{space} {size}@{align}"),
    st.sampled_from(["global", "const"]),
    st.integers(1, 64),
    powers,
)
functions = st.builds(
    lambda result, parameters: Symbol("f", SymbolKind.FUNCTION, f"({result})({parameters})"),
    st.sampled_from(["", "4", "8"]),
    st.sampled_from(["", "4", "4,8", "12@4"]),
)


@given(variables | functions)
def test_every_layout_is_compatible_with_itself(symbol: Symbol) -> None:
    assert symbol.is_compatible(symbol)


@given(functions, functions)
def test_functions_must_agree_exactly(a: Symbol, b: Symbol) -> None:
    assert a.is_compatible(b) == (a.layout == b.layout)


@given(functions, variables)
def test_a_function_is_no_variable(function: Symbol, variable: Symbol) -> None:
    assert not function.is_compatible(variable)
    assert not variable.is_compatible(function)


def variable(layout: str) -> Symbol:
    return Symbol("x", SymbolKind.VARIABLE, layout)


@pytest.mark.parametrize(
    ("required", "provided", "fits"),
    [
        ("global ?@4", "global 400@4", True),
        ("global ?@4", "global 400@16", True),
        ("global 16@4", "global 16@16", True),
        ("global 16@16", "global 16@4", False),
        ("global 16@4", "global 20@4", False),
        ("global 16@4", "const 16@4", False),
        ("const ?@8", "const 8@4", False),
    ],
)
def test_a_declaration_may_ask_for_less(required: str, provided: str, fits: bool) -> None:
    assert Symbol.is_compatible(variable(required), variable(provided)) is fits
