"""Fragment keys: one text form, which parses back."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jitlto.errors import JitltoError
from jitlto.model.fragment import FragmentKey, Symbol, SymbolKind, is_name
from jitlto.model.resolve import agrees, is_compatible
from tests.support.errors import raises

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]*", fullmatch=True)
keys = st.builds(FragmentKey.make, names, names, st.dictionaries(names, st.text(), max_size=4))


@given(keys)
@example(FragmentKey.make("f", "g", {"a": "", "b": "%2C", "c": "x=1,y=[2]", "d": "\n\0", "e": "é😀", "g": "a/b c"}))
def test_the_text_form_parses_back(key: FragmentKey) -> None:
    assert FragmentKey.parse(str(key)) == key


@given(keys)
def test_the_text_form_is_one_line_of_printable_ascii(key: FragmentKey) -> None:
    assert str(key).isascii()
    assert str(key).isprintable()


@given(keys, keys)
def test_distinct_keys_have_distinct_texts(a: FragmentKey, b: FragmentKey) -> None:
    assert (str(a) == str(b)) == (a == b)


@given(st.dictionaries(names, st.text(), max_size=4), st.randoms())
def test_a_key_does_not_depend_on_the_order_of_its_parameters(parameters: dict[str, str], random: object) -> None:
    shuffled = list(parameters.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert FragmentKey.make("f", "g", dict(shuffled)) == FragmentKey.make("f", "g", parameters)


def test_the_text_form_is_the_documented_one() -> None:
    key = FragmentKey.make("search", "compute_distance", {"distance_name": "euclidean", "data_type": "float"})
    assert str(key) == "search/compute_distance[data_type=float,distance_name=euclidean]"
    assert str(FragmentKey("f", "g")) == "f/g[]"
    assert FragmentKey.parse("f/g[]") == FragmentKey("f", "g")


@pytest.mark.parametrize(
    "text",
    [
        "", "f", "f/g", "f/g[", "f/g]", "f/g[]x", "/g[]", "f/[]", "f/g[a]", "f/g[a=1,]", "f/g[,a=1]", "f/g[=1]",
        "f/g[a=1,a=2]", "f/g[1a=2]", "f/g[a=[]]", "1f/g[]", "f/g h[]", "f/g/h[]", "f/g[a b=1]", "f/g[a=%]",
        "f/g[a=%z1]", "f/g[a=%ff]", "f/g[a=b=c]",
    ],
)  # fmt: skip
def test_malformed_text_is_refused(text: str) -> None:
    with raises(JitltoError, "jitlto-fragment-key") as caught:
        FragmentKey.parse(text)
    assert caught.value.hint


@given(st.text(alphabet="fg/[]=,%a1 \n\u00e9") | st.text())
def test_any_text_is_a_key_or_a_jitlto_error(text: str) -> None:
    try:
        key = FragmentKey.parse(text)
    except JitltoError:
        return
    assert FragmentKey.parse(str(key)) == key


def test_agreement_is_the_absence_of_contradiction() -> None:
    key = FragmentKey.make("f", "g", {"a": "1", "b": "2"})
    assert agrees(key, {})
    assert agrees(key, {"a": "1", "other": "3"})
    assert not agrees(key, {"a": "1", "b": "3"})


@pytest.mark.parametrize("text", ["a", "_", "data_type", "a.b-c", "A1"])
def test_names(text: str) -> None:
    assert is_name(text)


@pytest.mark.parametrize("text", ["", "1a", "a b", "a\n", "é", "-a", "a/b", "a=b"])
def test_no_names(text: str) -> None:
    assert not is_name(text)


# --- layouts ---

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
    assert is_compatible(symbol, symbol)


@given(functions, functions)
def test_functions_must_agree_exactly(a: Symbol, b: Symbol) -> None:
    assert is_compatible(a, b) == (a.layout == b.layout)


@given(functions, variables)
def test_a_function_is_no_variable(function: Symbol, variable: Symbol) -> None:
    assert not is_compatible(function, variable)
    assert not is_compatible(variable, function)


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
    assert is_compatible(variable(required), variable(provided)) is fits
