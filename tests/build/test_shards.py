"""Shards: every fragment in exactly one, evenly, the same on every machine."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.errors import BuildError
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.build.shards import Shard, digest_sources, select
from jitlto.families import declaration
from jitlto.record.fragment import FragmentKey
from tests.support.errors import raises
from tests.support.families import MINI, write_family
from tests.support.process import output_of

# --- I/N ---


@given(st.integers(1, 999), st.integers(0, 999))
def test_a_shard_is_written_as_it_is_read(number: int, more: int) -> None:
    shard = Shard(number, number + more)
    assert Shard.parse(f"{shard.number}/{shard.count}") == shard


@pytest.mark.parametrize(
    "text",
    ["", "1", "1/", "/2", "a/b", "1/2/3", "-1/2", "1.0/2", " 1/2", "1/2\n", "²/3", "1/9999999999", "0/4", "5/4", "1/0"],
)
def test_an_invalid_shard_is_refused_with_an_example(text: str) -> None:
    with raises(BuildError, "build-invalid-shard", repr(text), hint="2/4"):
        Shard.parse(text)


# --- Spreading ---


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_fragment_is_in_exactly_one_shard_in_any_order(tmp_path: Path, count: int) -> None:
    files = MINI | {
        "family.toml": MINI["family.toml"].replace("[device.op]", '[device.op]\nshared = ["op_name"]'),
        "op.json": '{"data_type": ["float", "double"], "op_name": ["a", "b", "c"], "expr": "a"}',
        "op.cu.jinja": MINI["op.cu.jinja"].replace("{{op_name}}", ""),  # two sources, of six fragments
    }
    requests = RenderedFamilies([declaration.load_family(write_family(tmp_path, files))]).requests
    spread = [select(requests, Shard(number, count)) for number in range(1, count + 1)]
    assert sorted(each.key for shard in spread for each in shard) == sorted(each.key for each in requests)
    sources = [{each.rendered.source for each in shard} for shard in spread]
    assert sum(map(len, sources)) == len(set().union(*sources)) == 4  # what one compile makes is in one
    assert max(map(len, sources)) - min(map(len, sources)) <= 1
    for number, shard in enumerate(spread, 1):
        assert {each.key for each in select(requests[::-1], Shard(number, count))} == {each.key for each in shard}


def test_every_process_computes_the_same_shards(tmp_path: Path) -> None:
    script = f"""
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.build.shards import Shard, select
from jitlto.families import declaration
requests = RenderedFamilies([declaration.load_family({str(write_family(tmp_path, MINI))!r})]).requests
print([[str(each.key) for each in select(requests, Shard(number, 3))] for number in (1, 2, 3)])
"""
    printed = {output_of(script, PYTHONHASHSEED=seed) for seed in ("1", "2")}
    assert len(printed) == 1


# --- What a part says of the whole ---


def contents(directory: Path, files: dict[str, str]) -> dict[FragmentKey, str]:
    loaded = declaration.load_family(write_family(directory, files))
    return digest_sources(RenderedFamilies([loaded]))


def test_the_digest_of_the_whole_depends_on_sources_and_not_on_directories(tmp_path: Path) -> None:
    before = contents(tmp_path / "a", MINI)
    assert contents(tmp_path / "b", MINI) == before
    changed = contents(tmp_path / "c", MINI | {"op.cu.jinja": MINI["op.cu.jinja"].replace("{{expr}}", "{{expr}} + 0")})
    assert {key.group for key in before if before[key] != changed[key]} == {"op"}
    header = contents(tmp_path / "d", MINI | {"op.cuh": MINI["op.cuh"] + "// changed\n"})
    assert all(before[key] != header[key] for key in before)
    renamed = contents(tmp_path / "e", MINI | {"family.toml": MINI["family.toml"].replace("* x", "* values")})
    assert {key.group for key in before if before[key] != renamed[key]} == {"kern"}
