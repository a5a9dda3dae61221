"""The record of a part: the keys of a build in little space, the same for all of its parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jitlto.database._part_record import decode_part, encode_part
from jitlto.database._serialization import InvalidRecordError
from jitlto.record.family_record import PartRecord
from jitlto.record.fragment import FragmentKey

KEYS = tuple(FragmentKey.make("f", "g", {"n": n, "t": t}) for n in "12" for t in ("double", "float"))
PART = PartRecord(1, 2, "0" * 64, KEYS, (), (("f", "_Z1f", "no such function"),), ())

names = st.sampled_from(["a", "b", "c"])
values = st.sampled_from(["", "x", "y", "a=b", "1,2", "%"])
keys = st.builds(FragmentKey.make, names, names, st.dictionaries(names, values))


def stored(**changed: Any) -> bytes:
    return json.dumps(json.loads(encode_part(PART)) | changed).encode()


def test_only_what_differs_from_the_key_before_is_written() -> None:
    (group,) = json.loads(encode_part(PART))["keys"]
    assert group["parameters"] == ["n", "t"]
    assert group["values"] == [["1", "double"], ["float"], ["2", "double"], ["float"]]


@given(st.lists(keys, unique=True).map(sorted).map(tuple))
def test_all_keys_are_read_as_they_were_written(several: tuple[FragmentKey, ...]) -> None:
    part = replace(PART, keys=several)
    assert decode_part(encode_part(part)) == part


def test_a_part_that_jitlto_0_1_wrote_is_read() -> None:
    assert decode_part(stored(keys=list(map(str, KEYS[::-1])), includes={str(KEYS[0]): ["op.cuh"]}, macros={})) == PART


@pytest.mark.parametrize(
    "group",
    [
        {"parameters": ["n"], "values": [["1", "x"]]},
        {"parameters": ["n", "t"], "values": [["1"]]},
        {"parameters": ["t", "n"], "values": [["1", "x"]]},
        {"parameters": ["n", "n"], "values": [["1", "x"]]},
        {"parameters": ["n", "["], "values": [["1", "x"]]},
        {"parameters": ["n"], "values": [[1]]},
    ],
)
def test_what_are_no_keys_is_refused(group: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecordError):
        decode_part(stored(keys=[{"family": "f", "group": "g", **group}]))


def test_parts_of_one_build_hold_its_keys_once_in_memory() -> None:
    one, other = (decode_part(encode_part(replace(PART, number=number))) for number in (1, 2))
    assert (one.keys, one.faults, other.number) == (KEYS, PART.faults, 2)
    assert one.keys is other.keys
