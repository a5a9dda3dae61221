"""Shards: every fragment in exactly one, evenly assign_shards, the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jitlto.base.errors import BuildError
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.build.shards import (
    Shard,
    ShardItem,
    assign_shards,
    balance,
    make_ci_matrix,
    make_part_record,
    select_fragments,
)
from jitlto.families import declaration
from jitlto.record.fragment import FragmentKey
from tests.support.errors import raises
from tests.support.families import MINI, write_family
from tests.support.process import output_of

counts = st.integers(1, 12)


@st.composite
def item_lists(draw: st.DrawFn) -> list[ShardItem]:
    numbers = draw(st.lists(st.integers(0, 10**6), max_size=30, unique=True))
    return [
        ShardItem(
            FragmentKey.make("f", "g", {"n": str(n)}), draw(st.sampled_from("abcdefgh")), draw(st.integers(1, 9999))
        )
        for n in numbers
    ]


# --- I/N ---


@pytest.mark.slow
@given(st.integers(1, 999), st.integers(0, 999))
def test_a_shard_is_written_as_it_is_read(number: int, more: int) -> None:
    shard = Shard(number, number + more)
    assert Shard.parse(str(shard)) == shard


@pytest.mark.parametrize(
    "text",
    ["", "1", "1/", "/2", "a/b", "1/2/3", "-1/2", "1.0/2", " 1/2", "1/2\n", "²/3", "1/9999999999", "0/4", "5/4", "1/0"],
)
def test_an_invalid_shard_is_refused_with_an_example(text: str) -> None:
    with raises(BuildError, "build-invalid-shard", repr(text), hint="2/4"):
        Shard.parse(text)


# --- Spreading ---


def shares(costs: list[int], taken: Sequence[int], count: int) -> list[int]:
    return [sum(cost for cost, number in zip(costs, taken, strict=True) if number == n) for n in range(count)]


@pytest.mark.slow
@given(st.lists(st.integers(0, 10**6), max_size=80), st.integers(1, 12))
def test_no_share_is_far_from_the_mean(costs: list[int], count: int) -> None:
    taken = balance(costs, count)
    assert len(taken) == len(costs)
    assert all(0 <= number < count for number in taken)
    assert count * max(shares(costs, taken, count)) <= sum(costs) + (count - 1) * max(costs, default=0)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.integers(0, 30), max_size=6), st.integers(1, 3))
@example([3, 3, 2, 2, 2], 2)  # 7 where 6 would do, the worst there is
def test_the_largest_share_is_at_most_four_thirds_of_the_best(costs: list[int], count: int) -> None:
    best = min(max(shares(costs, taken, count)) for taken in product(range(count), repeat=len(costs)))
    assert 3 * count * max(shares(costs, balance(costs, count), count)) <= (4 * count - 1) * best


def test_equal_costs_go_round_in_order() -> None:
    assert balance([1, 1, 1, 1, 1], 2) == [0, 1, 0, 1, 0]
    assert balance([1, 3, 2], 5) == [2, 0, 1]
    assert balance([], 3) == []


@pytest.mark.slow
@given(item_lists(), counts, st.randoms())
def test_every_fragment_is_in_exactly_one_shard_in_any_order(items: list[ShardItem], count: int, random: Any) -> None:
    shards = [select_fragments(items, Shard(number, count)) for number in range(1, count + 1)]
    assert sum(map(len, shards)) == len(items)
    assert frozenset().union(*shards) == {item.key for item in items}
    shuffled = list(items)
    random.shuffle(shuffled)
    assert [select_fragments(shuffled, Shard(number, count)) for number in range(1, count + 1)] == shards


@pytest.mark.slow
@given(item_lists(), counts)
def test_fragments_that_one_compile_makes_go_to_one_shard(items: list[ShardItem], count: int) -> None:
    numbers = assign_shards(items, count)
    together = {(item.compile, numbers[item.key]) for item in items}
    assert len(together) == len({item.compile for item in items})


@pytest.mark.slow
@given(item_lists(), counts)
def test_the_matrix_for_ci_lists_all_shards_and_counts_each_compile_once(items: list[ShardItem], count: int) -> None:
    include = make_ci_matrix(items, count)["include"]
    assert [entry["number"] for entry in include] == list(range(1, count + 1))
    assert [entry["shard"] for entry in include] == [f"{number}/{count}" for number in range(1, count + 1)]
    for entry in include:
        assert entry["fragments"] == len(select_fragments(items, Shard.parse(str(entry["shard"]))))
    dearest: dict[str, int] = {}
    for item in items:
        dearest[item.compile] = max(item.cost, dearest.get(item.compile, 0))
    assert sum(int(str(entry["cost"])) for entry in include) == sum(dearest.values())


@pytest.mark.slow
def test_shards_do_not_depend_on_the_hash_seed() -> None:
    script = (
        "from jitlto.build.shards import *; from jitlto.record.fragment import FragmentKey\n"
        "items = [ShardItem(FragmentKey.make('f', 'g', {'n': str(n)}), str(n % 7), n % 5 + 1) for n in range(40)]\n"
        "print(sorted((str(key), number) for key, number in assign_shards(items, 3).items()))"
    )
    printed = {output_of(script, PYTHONHASHSEED=seed) for seed in ("1", "2")}
    assert len(printed) == 1


# --- What a part says of the whole ---


def contents(directory: Path, files: dict[str, str]) -> dict[FragmentKey, str]:
    loaded = declaration.load_family(write_family(directory, files))
    return RenderedFamilies([loaded]).source_digests()


def test_the_digest_of_the_whole_depends_on_sources_and_not_on_directories(tmp_path: Path) -> None:
    before = contents(tmp_path / "a", MINI)
    assert contents(tmp_path / "b", MINI) == before
    changed = contents(tmp_path / "c", MINI | {"op.cu.jinja": MINI["op.cu.jinja"].replace("{{expr}}", "{{expr}} + 0")})
    assert {key.group for key in before if before[key] != changed[key]} == {"op"}
    header = contents(tmp_path / "d", MINI | {"op.cuh": MINI["op.cuh"] + "// changed\n"})
    assert all(before[key] != header[key] for key in before)
    renamed = contents(tmp_path / "e", MINI | {"family.toml": MINI["family.toml"].replace("* x", "* values")})
    assert {key.group for key in before if before[key] != renamed[key]} == {"kern"}


def test_a_part_record_has_what_its_merge_must_know() -> None:
    a, b, c = (FragmentKey.make("f", "op", {"n": n}) for n in "abc")
    faults = (("f", "two", "no"), ("f", "one", "no"))
    part = make_part_record(Shard(2, 3), {c: "3", a: "1", b: "2"}, faults, {"f": "nvrtc 12.9"}, ["advice"])
    assert part.keys == (a, b, c)
    assert part.faults == faults[::-1]
    assert (str(part), part.toolchains, part.advice) == ("part 2 of 3", (("f", "nvrtc 12.9"),), ("advice",))
    other = make_part_record(Shard(1, 3), {a: "1", b: "2", c: "3"}, (), {"f": "nvrtc 12.9"}, ())
    assert other.whole == part.whole
    assert make_part_record(Shard(1, 3), {a: "1", b: "2", c: "4"}, (), {}, ()).whole != part.whole
