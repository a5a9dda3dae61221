"""Fragment keys: one text form, which can be parsed."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jitlto.base.errors import JitltoError
from jitlto.record.fragment import FragmentKey, is_name
from tests.support.errors import raises

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]*", fullmatch=True)
keys = st.builds(FragmentKey.make, names, names, st.dictionaries(names, st.text(), max_size=4))


@pytest.mark.slow
@given(keys)
@example(FragmentKey.make("f", "g", {"a": "", "b": "%2C", "c": "x=1,y=[2]", "d": "\n\0", "e": "é😀", "g": "a/b c"}))
def test_the_text_form_parses_back(key: FragmentKey) -> None:
    assert FragmentKey.parse(str(key)) == key


@pytest.mark.slow
@given(keys, keys)
def test_distinct_keys_have_distinct_texts(a: FragmentKey, b: FragmentKey) -> None:
    assert (str(a) == str(b)) == (a == b)


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


@pytest.mark.slow
@given(st.text(alphabet="fg/[]=,%a1 \n\u00e9") | st.text())
def test_any_text_is_a_key_or_a_jitlto_error(text: str) -> None:
    try:
        key = FragmentKey.parse(text)
    except JitltoError:
        return
    assert FragmentKey.parse(str(key)) == key


@pytest.mark.parametrize("text", ["", "1a", "a b", "a\n", "é", "-a", "a/b", "a=b"])
def test_no_names(text: str) -> None:
    assert not is_name(text)


def test_names_of_sources_are_readable() -> None:
    key = FragmentKey.make("f", "g", {"veclen": "4", "data_type": "unsigned char", "x": "-0.5"})
    assert key.file_name == "data_type-unsigned%20char+veclen-4+x--0.5.cu"
    assert FragmentKey.make("f", "g", {}).file_name == "g.cu"


@pytest.mark.slow
@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_names_of_sources_differ_and_have_no_character_that_nvcc_or_a_file_system_refuses(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    names = [FragmentKey.make("f", "g", {"a": a, "b": b}).file_name for a, b in (one, other)]
    assert (names[0] == names[1]) == (one == other)
    assert all(re.fullmatch(r"[A-Za-z0-9_.~%+-]{1,203}", name) for name in names)
