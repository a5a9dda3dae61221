"""Wisdom: which variant the evidence chooses, merging, and the nearest answer for sizes that were not measured."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.tuning.wisdom import TIE, Wisdom
from tests.support.wisdom import A100, H200, entry, trial, wisdoms


def chosen(*args: object, **how: object) -> str:
    return str(entry(*args, **how).chosen.variant)  # type: ignore[arg-type]


def test_the_fastest_is_chosen_where_it_is_faster_by_more_than_a_tie() -> None:
    assert chosen(trial(1.0, veclen="1"), trial(0.9, veclen="4"), trial(0.95, veclen="8")) == "veclen=4"
    assert entry(trial(1.0, veclen="1"), trial(0.5, veclen="4")).speed_up == 2.0


def test_the_default_wins_ties() -> None:
    assert chosen(trial(1.0, veclen="1"), trial(1 - TIE / 2, veclen="4")) == "veclen=1"
    assert chosen(trial(1.0, veclen="1"), trial(1.0, veclen="0")) == "veclen=1"


def test_of_others_that_tie_that_which_is_declared_first_wins() -> None:
    assert chosen(trial(1.0, veclen="1"), trial(0.501, veclen="8"), trial(0.5, veclen="4")) == "veclen=8"


@pytest.mark.slow
@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=6))
def test_the_choice_costs_no_more_than_the_band(times: list[float]) -> None:
    made = entry(*(trial(seconds, veclen=str(n)) for n, seconds in enumerate(times)))
    assert made.chosen.seconds <= min(times) * (1 + TIE)


@pytest.mark.slow
@given(wisdoms, wisdoms, wisdoms)
def test_merging_is_commutative_associative_and_idempotent(a: Wisdom, b: Wisdom, c: Wisdom) -> None:
    assert a.merge(b).entries == b.merge(a).entries == a.merge(b).merge(b).entries
    assert a.merge(b).merge(c).entries == a.merge(b.merge(c)).entries == a.merge(b, c).entries
    assert a.merge(a).entries == a.merge(Wisdom()).entries == a.entries


def test_what_is_measured_again_takes_the_place_of_what_was() -> None:
    old, new = entry(trial(1.0, 100), trial(0.5, 100, veclen="4")), entry(trial(1.0, 10), trial(2.0, 10, veclen="4"))
    assert Wisdom([old]).merge(Wisdom([new])).entries == (old,)
    assert Wisdom([old]).replace(new).entries == (new,)


def test_of_an_entry_what_some_variants_took_still_counts() -> None:
    made = entry(trial(2.0, n="default"), trial(1.0, n="fastest"), trial(1.5, n="fast"), trial(3.0, n="slow"))

    def ranked(*names: str) -> list[str]:
        found = made.ranked(lambda each: dict(each.parameters)["n"] in names)
        return [dict(each.variant.parameters)["n"] for each in found]

    assert ranked("default", "fastest", "fast", "slow") == ["fastest", "fast", "default", "slow"]
    assert ranked("default", "fast", "slow") == ["fast", "default", "slow"]
    assert ranked("fast", "slow") == ["fast", "slow"]  # without the default
    assert ranked("default", "slow") == ["default", "slow"]
    assert ranked("slow") == ["slow"]
    assert ranked("default") == []  # with which nothing was compared
    assert ranked() == []


def find(wisdom: Wisdom, *, rows: int = 1024, device: str = H200, data_type: str = "float") -> list[str]:
    found = wisdom.find("mini", "kern", {"data_type": data_type}, (("rows", rows),), device)
    return [str(each.chosen.variant) for each in found]


def test_what_was_measured_comes_first_then_the_nearest_buckets_of_the_same_kind_of_device_and_configuration() -> None:
    exact = entry(trial(1.0, n="exact"))
    larger = entry(trial(1.0, n="larger"), rows=4096)
    much_larger = entry(trial(1.0, n="much"), rows=1 << 30)
    double = entry(trial(1.0, n="double"), data_type="double")
    elsewhere = entry(trial(1.0, n="elsewhere"), device=A100)
    everything = Wisdom([exact, larger, much_larger, double, elsewhere, entry(trial(1.0), family="other")])
    assert find(everything) == ["n=exact", "n=larger", "n=much"]
    assert find(everything, rows=3000)[0] == "n=larger"
    assert find(everything, device=A100) == ["n=elsewhere"]
    assert find(everything, data_type="double") == ["n=double"]
    assert find(Wisdom()) == []


def test_an_entry_with_other_sizes_answers_nothing() -> None:
    made = Wisdom([entry(trial(1.0))])
    assert not list(made.find("mini", "kern", {"data_type": "float"}, (("rows", 1), ("users", 2)), H200))


@pytest.mark.slow
@given(wisdoms, st.randoms(use_true_random=False))
def test_two_processes_find_the_same_whatever_the_order_of_their_files(wisdom: Wisdom, shuffler: random.Random) -> None:
    shuffled = list(wisdom.entries)
    shuffler.shuffle(shuffled)
    assert find(Wisdom(shuffled)) == find(wisdom)
    assert Wisdom(shuffled).entries == wisdom.entries
