"""Look-ups of fragments by the values of their parameters: the same as comparing each of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.record.fragment import Fragment
from jitlto.record.index import Candidates, agrees
from tests.plan.test_resolve import fragment

configurations = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("123"))
several = st.lists(st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3), max_size=12)


def some(*parameters: dict[str, str]) -> list[Fragment]:
    return [fragment(f"g{number}", **each) for number, each in enumerate(parameters)]


def test_a_parameter_that_a_configuration_does_not_give_is_free() -> None:
    both, one, other, none = fragments = some({"a": "1", "b": "1"}, {"a": "1"}, {"a": "2"}, {})
    candidates = Candidates(fragments)
    assert candidates.find({}) == fragments
    assert candidates.find({"a": "1"}) == [both, one, none]
    assert candidates.find({"b": "2", "z": "1"}) == [one, other, none]
    assert candidates.parameters() == {"a", "b"}


@pytest.mark.slow
@given(several, st.lists(configurations))
def test_what_is_found_is_what_agrees_in_the_order_of_the_fragments(
    parameters: list[dict[str, str]], asked: list[dict[str, str]]
) -> None:
    fragments = some(*parameters)
    candidates = Candidates(fragments)
    for configuration in asked:
        assert candidates.find(configuration) == [f for f in fragments if agrees(f.key, configuration)]
