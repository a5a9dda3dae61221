"""The search on simulated devices: how far from the best it ends, what it costs, and that repeated searches agree."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.errors import JitltoError, LinkError
from jitlto.record.tuning import Variant
from jitlto.tuning import search as searching
from jitlto.tuning.search import Outcome
from jitlto.tuning.wisdom import Entry, Trial
from tests.support.errors import raises
from tests.support.simulated import Simulated
from tests.support.wisdom import H200, make_entry


def variants_of(count: int) -> list[Variant]:
    return [Variant((("number", str(number)),)) for number in range(count)]


def search(times: list[float], device: Simulated, **how: object) -> Outcome:
    by_variant = dict(zip(variants_of(len(times)), times, strict=True))

    def prepare(variant: Variant):  # type: ignore[no-untyped-def]
        return lambda: by_variant[variant]

    options = {"budget": 1e9, "clock": lambda: device.now} | how
    return searching.search(list(by_variant), prepare, device.time, **options)  # type: ignore[arg-type]


def entry_of(outcome: Outcome) -> Entry:
    trials = [Trial(c.variant, c.seconds, len(c.times)) for c in outcome.candidates]
    return make_entry("f", "e", {}, (), H200, trials)


def chosen(outcome: Outcome) -> int:
    return int(dict(entry_of(outcome).chosen.variant.parameters)["number"])


def landscape(seed: int, count: int) -> list[float]:
    """Times of variants: spread widely, crowded near the best, or a few levels with little between them."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    base = draw.uniform(1e-5, 1e-2)
    match seed % 3:
        case 0:
            return [base * draw.uniform(1, 4) for _ in range(count)]
        case 1:
            return [base * draw.uniform(1, 1.3) for _ in range(count)]
    return [base * draw.choice([1, 1.05, 1.3, 2, 5]) * draw.uniform(1, 1.002) for _ in range(count)]


@pytest.mark.slow
@settings(max_examples=60, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([8, 20, 60, 200]))
def test_the_choice_is_near_the_best_for_a_tenth_of_the_time_of_an_exhaustive_search(seed: int, count: int) -> None:
    times = landscape(seed, count)
    outcome = search(times, Simulated(seed))
    assert times[chosen(outcome)] <= 1.02 * min(times)
    assert sum(sum(each.taken) for each in outcome.candidates) <= 0.1 * 100 * sum(times)
    assert not outcome.rejected


def test_a_small_search() -> None:
    times = [3.0, 1.0, 2.0, 1.5]
    outcome = search(times, Simulated(1))
    assert chosen(outcome) == 1
    assert [int(dict(c.variant.parameters)["number"]) for c in outcome.candidates] == [0, 1, 2, 3]
    assert outcome.candidates[0].seconds == pytest.approx(3.0, rel=0.02)


def test_the_default_wins_where_others_are_within_a_tie() -> None:
    for again in range(10):
        assert chosen(search([1.004, 1.0, 1.001, 1.002, 1.3], Simulated(again))) == 0


def test_a_time_of_nothing_is_a_time_that_wisdom_can_hold() -> None:
    outcome = searching.search(variants_of(2), lambda variant: lambda: 0.0, lambda launch: float(launch()))  # type: ignore[arg-type]
    assert min(min(each.taken) for each in outcome.candidates) > 0


def test_a_budget_ends_it() -> None:
    times = landscape(3, 60)
    device = Simulated(3)
    outcome = search(times, device, budget=30 * times[0])
    assert 0 < len(outcome.rejected) < 60
    assert device.now <= 30 * times[0] + 2 * max(times)


def test_variants_that_cannot_be_used_are_left_out_and_the_default_must_be_usable() -> None:
    def prepare(variant: Variant):  # type: ignore[no-untyped-def]
        if dict(variant.parameters)["number"] in broken:
            raise LinkError("no link")
        return lambda: 1.0 / (1 + int(dict(variant.parameters)["number"]))

    broken = {"2", "3"}
    device = Simulated(0)
    outcome = searching.search(variants_of(4), prepare, device.time)
    assert chosen(outcome) == 1
    assert set(outcome.rejected.values()) == {"no link"}
    broken.add("0")
    with raises(LinkError):
        searching.search(variants_of(4), prepare, device.time)
    assert issubclass(LinkError, JitltoError)
