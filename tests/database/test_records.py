"""Records of a database: one text for each value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.database import _records as records

texts = st.text(st.characters(exclude_categories=())) | st.text("\0\x1f\"\\/\x7f\n\té\u2028<>&'")
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
)


def test_records_are_ascii_and_sorted() -> None:
    assert records.encode({"b": ["é", "\x7f"], "a": 1}) == b'{"a":1,"b":["\\u00e9","\\u007f"]}'


@pytest.mark.slow
@given(values)
def test_a_value_has_the_text_that_the_standard_library_gives_it(value: object) -> None:
    assert records.encode(value) == json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
