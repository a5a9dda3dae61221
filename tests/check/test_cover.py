"""Covering arrays contain every combination that occurs, in far fewer configurations."""

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.check.compare import choose_cover

Configurations = list[dict[str, str]]


def occurring(configurations: Configurations, strength: int) -> set[frozenset[tuple[str, str]]]:
    """Return every combination of ``strength`` values that occurs, without the code under test."""
    return {
        frozenset(combination)
        for configuration in configurations
        for combination in combinations(configuration.items(), min(strength, len(configuration)))
    }


def full(values: dict[str, int]) -> Configurations:
    """Return the full product, with this many values for each parameter."""
    names = list(values)
    return [
        dict(zip(names, map(str, row), strict=True)) for row in product(*(range(count) for count in values.values()))
    ]


@st.composite
def spaces(draw: st.DrawFn) -> Configurations:
    """Draw random parameters and values without random pairs of values; configurations may lack parameters."""
    values = {f"p{n}": draw(st.integers(1, 4)) for n in range(draw(st.integers(0, 4)))}
    pairs = [(a, b) for a, b in product(values, values) if a < b]
    forbidden = {
        (draw(st.integers(0, 3)), draw(st.integers(0, 3)), draw(st.sampled_from(pairs)))
        for _ in range(draw(st.integers(0, 6)) if pairs else 0)
    }
    rows = [row for row in full(values) if not any(row[a] == str(x) and row[b] == str(y) for x, y, (a, b) in forbidden)]
    optional = draw(st.sampled_from(["", *values]))
    dropped = [{k: v for k, v in row.items() if k != optional or row[k] != "0"} for row in rows]
    return [dict(row) for row in sorted({tuple(sorted(row.items())) for row in dropped})]


@pytest.mark.slow
@given(spaces(), st.integers(1, 5))
def test_the_cover_contains_every_combination_that_occurs(space: Configurations, strength: int) -> None:
    chosen = [space[place] for place in choose_cover(space, strength)]
    assert occurring(chosen, strength) == occurring(space, strength)


def test_pairs_need_few_of_many() -> None:
    space = full(dict.fromkeys("abcdef", 4))
    assert len(space) == 4096
    assert 16 <= len(choose_cover(space, 2)) <= 32


def test_a_configuration_with_fewer_parameters_is_covered() -> None:
    assert choose_cover([{"a": "1"}, {"a": "1", "b": "1"}, {}], 2) == [0, 1, 2]
    assert choose_cover([], 2) == []
