"""Shards: every fragment in exactly one, evenly assign_shards, the same on every machine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.errors import BuildError
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.build.shards import Shard, assign_shards, make_part_record
from jitlto.families import declaration
from jitlto.record.fragment import FragmentKey
from tests.support.errors import raises
from tests.support.families import MINI, write_family
from tests.support.process import output_of

counts = st.integers(1, 12)


compiles = st.dictionaries(
    st.builds(lambda n: FragmentKey.make("f", "g", {"n": str(n)}), st.integers(0, 10**6)),
    st.sampled_from("abcdefgh"),
    max_size=30,
)


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


@pytest.mark.slow
@given(compiles, counts, st.randoms())
def test_every_fragment_is_in_exactly_one_shard_in_any_order(
    made: dict[FragmentKey, str], count: int, random: Any
) -> None:
    shards = assign_shards(made, count)
    assert shards.keys() == made.keys()
    assert set(shards.values()) <= set(range(1, count + 1))
    shuffled = list(made.items())
    random.shuffle(shuffled)
    assert assign_shards(dict(shuffled), count) == shards


@pytest.mark.slow
@given(compiles, counts)
def test_fragments_that_one_compile_makes_go_to_one_shard(made: dict[FragmentKey, str], count: int) -> None:
    numbers = assign_shards(made, count)
    together = {(compile_, numbers[key]) for key, compile_ in made.items()}
    assert len(together) == len(set(made.values()))
    spread = Counter(number for _, number in together)
    assert max(spread.values(), default=0) - min((spread[n] for n in range(1, count + 1)), default=0) <= 1


@pytest.mark.slow
def test_shards_do_not_depend_on_the_hash_seed() -> None:
    script = (
        "from jitlto.build.shards import *; from jitlto.record.fragment import FragmentKey\n"
        "made = {FragmentKey.make('f', 'g', {'n': str(n)}): str(n % 7) for n in range(40)}\n"
        "print(sorted((str(key), number) for key, number in assign_shards(made, 3).items()))"
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
