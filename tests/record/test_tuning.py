"""Variants, buckets of sizes and launches, as an author declares them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.errors import PlanError
from jitlto.record.tuning import Launch, TuneRecord, Variant, applies, launch
from tests.support.errors import raises

RECORD = TuneRecord(
    free=("mode", "veclen"),
    default=(("mode", "fast"), ("veclen", "4")),
    sizes=(("dim", "exact"), ("rows", "log2"), ("users", (1, 8, 64))),
    launch=(
        (("block", "256"), ("grid", "cdiv(rows, block)"), ("mode", "fast")),
        (("block", "64"), ("grid", "cdiv(rows, block), 2"), ("mode", "slow"), ("shared_memory", "block * veclen")),
    ),
    link=(("max_registers", (64, 128)),),
    when=("dim % veclen == 0",),
)
VALUES = {"mode": ["slow", "fast"], "veclen": ["16", "1", "4"], "data_type": ["float"]}
SIZES = {"dim": 6, "rows": 1000, "users": 9}


def test_the_default_comes_first_and_every_choice_once() -> None:
    variants = list(RECORD.variants(VALUES, {}))
    assert variants[0] == Variant(
        (("mode", "fast"), ("veclen", "4")), (("block", "256"), ("grid", "cdiv(rows, block)")), ()
    )
    assert len(variants) == len(set(variants)) == 2 * 3 * 3
    assert [dict(v.parameters)["veclen"] for v in variants[::3]] == ["4", "1", "16"] * 2  # numbers by value
    assert {dict(v.launch)["block"] for v in variants if dict(v.parameters)["mode"] == "slow"} == {"64"}


def test_a_launch_choice_may_be_for_one_value_of_a_problem() -> None:
    record = TuneRecord(
        launch=((("block", "1"), ("grid", "1"), ("kind", "a")), (("block", "2"), ("grid", "1"), ("kind", "b")))
    )
    (variant,) = record.variants({}, {"kind": "b"})
    assert dict(variant.launch)["block"] == "2"


def test_variants_apply_where_the_conditions_hold() -> None:
    fits = {dict(v.parameters)["veclen"] for v in RECORD.variants(VALUES, {}) if applies(RECORD, v, {}, SIZES)}
    assert fits == {"1"}


def test_a_launch_is_computed_from_sizes_parameters_and_its_own_parts() -> None:
    slow = next(v for v in RECORD.variants(VALUES, {}) if dict(v.parameters)["mode"] == "slow")
    assert launch(slow, {}, SIZES) == Launch((16, 2), (64,), None, 64 * 4)
    assert launch(Variant(), {}, SIZES) == Launch()


@pytest.mark.parametrize(
    "text", ["0", "1, 2, 3, 4", "rows - 2000", "rows // 0", "1 << 2", "'a'", "missing", "2147483648"]
)
def test_an_extent_that_no_launch_has_is_an_error_and_no_variant(text: str) -> None:
    variant = Variant((), (("block", "1"), ("grid", text)))
    with raises(PlanError, "plan-launch-choice"):
        launch(variant, {}, SIZES)
    assert not applies(TuneRecord(), variant, {}, SIZES)


def test_buckets() -> None:
    assert RECORD.bucket({"dim": 6, "rows": 1000, "users": 9}) == (("dim", 6), ("rows", 512), ("users", 8))
    assert RECORD.bucket({"dim": 0, "rows": 0, "users": 0}) == (("dim", 0), ("rows", 0), ("users", 0))


@pytest.mark.slow
@given(st.integers(0, 1 << 62), st.integers(0, 1 << 62))
def test_larger_sizes_never_fall_into_smaller_buckets(one: int, other: int) -> None:
    small, large = sorted((one, other))
    for name in ("dim", "rows", "users"):
        sizes = [dict(RECORD.bucket(dict.fromkeys(SIZES, value)))[name] for value in (small, large)]
        assert sizes[0] <= sizes[1]
        assert sizes[0] <= small
        assert dict(RECORD.bucket(dict.fromkeys(SIZES, sizes[0])))[name] == sizes[0]


class Index:
    """An integer of another library."""

    def __index__(self) -> int:
        return 7


def test_a_problem_is_split_into_configuration_and_sizes() -> None:
    problem = {"data_type": "float", "rows": 5, "dim": Index(), "users": 0}
    assert RECORD.split(problem, "f") == ({"data_type": "float"}, {"rows": 5, "dim": 7, "users": 0})


@pytest.mark.parametrize(
    ("change", "name"),
    [({"rows": "many"}, "rows"), ({"rows": -1}, "rows"), ({"rows": 1 << 63}, "rows"), ({"veclen": 4}, "veclen"),
     ({"rows": 1.5}, "rows")],
)  # fmt: skip
def test_a_problem_that_is_none(change: dict[str, object], name: str) -> None:
    with raises(PlanError, "plan-problem", name, where="f"):
        RECORD.split({"rows": 5, "dim": 1, "users": 1} | change, "f")
    with raises(PlanError, "plan-problem", "users"):
        RECORD.split({"rows": 5, "dim": 1}, "f")


def test_a_variant_is_described() -> None:
    assert str(Variant()) == "default"
    assert str(Variant((("a", "1"),), (("block", "2"),), (("ptxas", ("-v",)),))) == "a=1 block=2 ptxas=-v"
