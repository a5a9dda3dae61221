"""Exclusions: which combinations they match."""

from __future__ import annotations

from jitlto.record.exclusions import is_excluded


def test_an_exclusion_matches_what_has_all_its_values() -> None:
    half_max = (("data_type", "half"), ("op", "max"))
    assert is_excluded([half_max], {"data_type": "half", "op": "max", "n": "1"})
    assert not is_excluded([half_max], {"data_type": "half", "op": "min"})
    assert not is_excluded([half_max], {"op": "max"})
    assert not is_excluded([], {"op": "max"})
