"""Records sorted on disk: in the order of their keys, whatever characters these have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.database._disk_sort import sort_on_disk
from jitlto.record.fragment import FragmentKey

texts = st.text(st.characters(exclude_categories=()), max_size=3) | st.text("ab\0\1é\U00010000", max_size=3)
parameters = st.dictionaries(st.sampled_from(["a", "ab", "b"]), texts, max_size=3)
keys = st.builds(FragmentKey.make, st.sampled_from("fg"), st.sampled_from(["op", "opa"]), parameters)


@pytest.mark.slow
@given(st.lists(keys, unique=True))
def test_records_come_in_the_order_of_their_keys(several: list[FragmentKey]) -> None:
    numbers = [str(number).encode() for number in range(len(several))]
    ordered = sorted(zip(several, numbers, strict=True))
    assert list(sort_on_disk(zip(several, numbers, strict=True))) == [number for _, number in ordered]
