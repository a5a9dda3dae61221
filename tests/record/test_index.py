"""Look-ups of fragments by the values of their parameters: the same as comparing each of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.record.fragment import FragmentKey
from jitlto.record.index import Candidates, agrees

configurations = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("123"))
several = st.lists(st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3), max_size=12)


def some(*parameters: dict[str, str]) -> list[FragmentKey]:
    return [FragmentKey.make("f", f"g{number}", each) for number, each in enumerate(parameters)]


def test_a_parameter_that_a_configuration_does_not_give_is_free() -> None:
    both, one, other, none = keys = some({"a": "1", "b": "1"}, {"a": "1"}, {"a": "2"}, {})
    candidates = Candidates(keys)
    assert candidates.find({}) == keys
    assert candidates.find({"a": "1"}) == [both, one, none]
    assert candidates.find({"b": "2", "z": "1"}) == [one, other, none]
    assert list(candidates.parameters()) == ["a", "b"]


@pytest.mark.slow
@given(several, st.lists(configurations))
def test_what_is_found_is_what_agrees_in_the_order_of_the_keys(
    parameters: list[dict[str, str]], asked: list[dict[str, str]]
) -> None:
    keys = some(*parameters)
    candidates = Candidates(keys)
    for configuration in asked:
        assert candidates.find(configuration) == [key for key in keys if agrees(key, configuration)]
