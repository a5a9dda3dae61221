"""A build says which groups would have other code for later architectures, and what is gained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from jitlto.build.cache.cache import Cache
from jitlto.build.pipeline import BuildReport, build
from jitlto.cli import cli
from jitlto.storage.declaration import load_family
from tests.support.families import CONVERT, MINI, write_family

FOR_75 = CONVERT | {"family.toml": CONVERT["family.toml"].replace('"auto"', '["75"]')}


def made(directory: Path, files: dict[str, str], cache: Cache | None) -> BuildReport:
    family = load_family(write_family(directory, files))
    return build([family], directory / "made.fragdb", jobs=1, cache=cache, compare_archs=True)


def test_a_group_whose_code_differs_is_named_with_values_and_instructions(tmp_path: Path, cache: Cache) -> None:
    (note,) = made(tmp_path, FOR_75, cache).architectures
    assert note.group == "convert/store"
    assert set(note.where["to_type"]) == {"__nv_bfloat16", "__nv_fp8_e4m3"}
    assert note.example in {
        "convert/store[from_type=float,to_type=__nv_bfloat16]",
        "convert/store[from_type=__half,to_type=__nv_fp8_e4m3]",
    }
    assert {gain.architecture for gain in note.gains} <= {"80", "89"}
    assert all(gain.after < gain.before for gain in note.gains)
    assert 2 <= note.compared <= note.of == 4
    assert note.group in str(note)
    assert "auto" in str(note)


@pytest.mark.slow
def test_a_build_with_nothing_to_compile_says_it_again(tmp_path: Path, cache: Cache) -> None:
    first = made(tmp_path, FOR_75, cache)
    again = made(tmp_path, FOR_75, cache)
    assert again.compiled == 0
    assert again.architectures == first.architectures != ()


@pytest.mark.slow
def test_a_family_that_ships_such_code_or_has_none_is_not_named(tmp_path: Path, cache: Cache) -> None:
    assert made(tmp_path, CONVERT, cache).architectures == ()
    assert made(tmp_path / "80", FOR_75 | {"family.toml": with_archs('["75", "80", "89"]')}, cache).architectures == ()
    assert made(tmp_path / "mini", MINI, cache).architectures == ()


def with_archs(archs: str) -> str:
    return CONVERT["family.toml"].replace('"auto"', archs)


@pytest.mark.slow
def test_comparing_does_not_change_the_database(tmp_path: Path, cache: Cache) -> None:
    compared = made(tmp_path, FOR_75, cache).path.read_bytes()
    family = load_family(tmp_path / "family.toml")
    assert build([family], tmp_path / "plain.fragdb", jobs=1, cache=cache).path.read_bytes() == compared


@pytest.mark.slow
def test_the_command_prints_it_unless_told_not_to(tmp_path: Path) -> None:
    path = write_family(tmp_path, FOR_75)
    command = ["build", str(path), "-o", str(tmp_path / "made.fragdb"), "--json", "-j", "1"]
    told = CliRunner().invoke(cli, command)
    assert "convert/store" in told.stderr
    (note,) = json.loads(told.stdout)["architectures"]
    assert note["group"] == "convert/store"
    silent = CliRunner().invoke(cli, [*command, "--no-compare-archs"])
    assert silent.stderr == ""
    assert json.loads(silent.stdout)["architectures"] == []
