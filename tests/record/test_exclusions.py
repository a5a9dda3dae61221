"""Exclusions: which combinations they match, and when they leave nothing of some values."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.record.exclusions import Exclusion, cover, is_excluded

VALUES = {"a": ("1", "2", "3"), "b": ("x", "y"), "c": ("u", "v", "w")}
WHOLE = [dict(zip(VALUES, cell, strict=True)) for cell in product(*VALUES.values())]
partials = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in VALUES.items()})
exclusions = st.lists(partials.filter(bool).map(lambda each: tuple(sorted(each.items()))), max_size=6)


def test_an_exclusion_matches_what_has_all_its_values() -> None:
    half_max = (("data_type", "half"), ("op", "max"))
    assert is_excluded([half_max], {"data_type": "half", "op": "max", "n": "1"})
    assert not is_excluded([half_max], {"data_type": "half", "op": "min"})
    assert not is_excluded([half_max], {"op": "max"})
    assert not is_excluded([], {"op": "max"})


@pytest.mark.slow
@given(exclusions, partials)
def test_values_are_covered_if_each_combination_with_them_is_excluded(
    excluded: list[Exclusion], partial: dict[str, str]
) -> None:
    concerned = [cell for cell in WHOLE if cell.items() >= partial.items()]
    assert cover(excluded, VALUES, partial) == all(is_excluded(excluded, cell) for cell in concerned)


@pytest.mark.slow
@given(exclusions, partials)
def test_values_of_parameters_that_a_group_lacks_make_no_difference(
    excluded: list[Exclusion], partial: dict[str, str]
) -> None:
    assert cover(excluded, VALUES, partial | {"z": "1"}) == cover(excluded, VALUES, partial)


def test_very_many_exclusions_take_bounded_time() -> None:
    names = [f"p{n}" for n in range(60)]
    hard = [tuple(sorted({names[n]: "0", names[(7 * n + k) % 60]: "1"}.items())) for n in range(60) for k in (1, 2, 3)]
    cover(hard, dict.fromkeys(names, ("0", "1", "2")), {})
