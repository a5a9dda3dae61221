"""Records of a database: one text for each value, and what many records share is decoded once."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jitlto.model.family_record import Includes, PartRecord
from jitlto.model.fragment import FragmentKey
from jitlto.storage.database import _serialization as serialization

texts = st.text(st.characters(exclude_categories=())) | st.text("\0\x1f\"\\/\x7f\n\té\u2028<>&'")
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
)


def test_records_are_ascii_and_sorted() -> None:
    assert serialization.encode({"b": ["é", "\x7f"], "a": 1}) == b'{"a":1,"b":["\\u00e9","\\u007f"]}'


@pytest.mark.slow
@given(values)
def test_a_value_has_the_text_that_the_standard_library_gives_it(value: object) -> None:
    assert serialization.encode(value) == json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def test_parts_of_one_build_hold_its_keys_once_in_memory() -> None:
    keys = tuple(FragmentKey("f", "g", (("n", str(number)),)) for number in range(3))
    includes = Includes(frozenset({"op.cuh", "a.cuh"}), frozenset({("op.cuh", "#define WIDE")}))
    first = PartRecord(1, 2, "0" * 64, keys, (), ((keys[0], includes),), ())
    one, other = (serialization.decode_part(serialization.encode_part(replace(first, number=n))) for n in (1, 2))
    assert (one.keys, one.includes, other.number) == (keys, first.includes, 2)
    assert one.keys is other.keys
