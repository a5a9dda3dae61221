"""Variants and buckets of sizes, as an author declares them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.errors import PlanError
from jitlto.record.tuning import TuneRecord, Variant
from tests.support.errors import raises

RECORD = TuneRecord(
    free=(("mode", "fast"), ("veclen", "4")),
    block=((256,), (16, 8)),
    sizes=(("dim", "exact"), ("rows", "log2")),
)
VALUES = {"mode": ["slow", "fast"], "veclen": ["16", "1", "4"], "data_type": ["float"]}
SIZES = {"dim": 6, "rows": 1000}


def test_the_default_comes_first_and_every_choice_once() -> None:
    variants = list(RECORD.variants(VALUES))
    assert variants[0] == Variant((("mode", "fast"), ("veclen", "4")), (256,))
    assert len(variants) == len(set(variants)) == 2 * 3 * 2
    assert [dict(v.parameters)["veclen"] for v in variants[::2]] == ["4", "1", "16"] * 2  # numbers by value
    assert [v.block for v in variants] == [(256,), (16, 8)] * 6


def test_without_blocks_the_caller_decides() -> None:
    assert list(TuneRecord((("mode", "fast"),)).variants(VALUES)) == [
        Variant((("mode", "fast"),)), Variant((("mode", "slow"),))
    ]  # fmt: skip


def test_buckets() -> None:
    assert RECORD.bucket({"dim": 6, "rows": 1000}) == (("dim", 6), ("rows", 512))
    assert RECORD.bucket({"dim": 0, "rows": 0}) == (("dim", 0), ("rows", 0))


@pytest.mark.slow
@given(st.integers(0, 1 << 62), st.integers(0, 1 << 62))
def test_larger_sizes_never_fall_into_smaller_buckets(one: int, other: int) -> None:
    small, large = sorted((one, other))
    for name in ("dim", "rows"):
        sizes = [dict(RECORD.bucket(dict.fromkeys(SIZES, value)))[name] for value in (small, large)]
        assert sizes[0] <= sizes[1]
        assert sizes[0] <= small
        assert dict(RECORD.bucket(dict.fromkeys(SIZES, sizes[0])))[name] == sizes[0]


class Index:
    """An integer of another library."""

    def __index__(self) -> int:
        return 7


def test_a_problem_is_split_into_configuration_and_sizes() -> None:
    problem = {"data_type": "float", "rows": 5, "dim": Index()}
    assert RECORD.split(problem, "f") == ({"data_type": "float"}, {"rows": 5, "dim": 7})


@pytest.mark.parametrize(
    ("change", "name"),
    [({"rows": "many"}, "rows"), ({"rows": -1}, "rows"), ({"rows": 1 << 63}, "rows"), ({"veclen": 4}, "veclen"),
     ({"rows": 1.5}, "rows")],
)  # fmt: skip
def test_a_problem_that_is_none(change: dict[str, object], name: str) -> None:
    with raises(PlanError, "plan-problem", name, where="f"):
        RECORD.split({"rows": 5, "dim": 1} | change, "f")
    with raises(PlanError, "plan-problem", "dim"):
        RECORD.split({"rows": 5}, "f")


def test_a_variant_is_described() -> None:
    assert str(Variant()) == "default"
    assert str(Variant((("a", "1"),), (16, 8))) == "a=1 block=16x8"
