"""What fits and is worth most, against trying everything."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.runtime.knapsack import choose

pytestmark = pytest.mark.one_major

things = st.lists(st.tuples(st.floats(0, 100), st.integers(1, 50)), max_size=9)


def exact(worths: list[float], sizes: list[int], room: int) -> float:
    """The worth of the best choice."""
    every = chain.from_iterable(combinations(range(len(sizes)), count) for count in range(len(sizes) + 1))
    fitting = (chosen for chosen in every if sum(sizes[n] for n in chosen) <= room)
    return max(sum(worths[n] for n in chosen) for chosen in fitting)


@pytest.mark.slow
@given(things, st.integers(0, 200))
def test_what_is_chosen_fits_and_is_worth_at_least_half_of_the_best(drawn: list[tuple[float, int]], room: int) -> None:
    worths, sizes = [worth for worth, _ in drawn], [size for _, size in drawn]
    chosen = choose(worths, sizes, room)
    assert sum(sizes[n] for n in chosen) <= room
    assert sum(worths[n] for n in chosen) >= exact(worths, sizes, room) / 2 - 1e-9
    assert choose(worths, sizes, room) == chosen


@pytest.mark.slow
@given(st.lists(st.floats(0, 100), max_size=9), st.integers(1, 50), st.integers(0, 200))
def test_among_equal_sizes_it_is_the_best(worths: list[float], size: int, room: int) -> None:
    sizes = [size] * len(worths)
    assert abs(sum(worths[n] for n in choose(worths, sizes, room)) - exact(worths, sizes, room)) < 1e-9


def test_where_the_worth_for_the_size_alone_would_fail() -> None:
    assert choose([1.1, 10.0], [1, 10], 10) == {1}
    assert choose([6.0, 5.0, 5.0], [6, 5, 5], 10) == {1, 2}


def test_everything_that_fits_is_taken() -> None:
    assert choose([1.0] * 300, [2] * 300, 10_000) == set(range(300))
    assert choose([0.0, 1.0], [1, 1], 2) == {1}
    assert choose([], [], 5) == frozenset()
