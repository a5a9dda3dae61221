"""What a check covered is named."""

from __future__ import annotations

import pytest

from jitlto.record.check_result import FamilyLinks


@pytest.mark.parametrize(
    ("cover", "name"), [(1, "values"), (2, "pairs of values"), (3, "triples of values"), (4, "4-tuples of values")]
)
def test_what_a_covering_array_covers_has_a_name(cover: int, name: str) -> None:
    assert FamilyLinks("f", True, 1, 4, cover, 4, ()).tuple_name == name
