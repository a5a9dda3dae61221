"""Twins with line information: the same fragments, and the sources that they were compiled from, each time the same."""

import hashlib
from pathlib import Path

import pytest

from jitlto.base.errors import CompileError
from jitlto.base.files import digest_of
from jitlto.build.lineinfo import build_twin
from jitlto.build.pipeline import build
from jitlto.database import FragmentDatabase
from jitlto.database.twin import SOURCES, TwinManifest, twin_directory
from jitlto.families.declaration import load_family
from jitlto.runtime.family import load
from tests.support.errors import raises
from tests.support.families import MINI, SHARED, write_family
from tests.support.line_information import machine_code

CONFIGURATION = {"data_type": "float", "op_name": "twice"}
SOURCE = "mini/op/data_type-float+op_name-twice.cu"


def hashes(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_a_twin_has_the_same_fragments_and_their_machine_code(twin_path: Path) -> None:
    databases = [FragmentDatabase(path) for path in (twin_path, twin_directory(twin_path) / twin_path.name)]
    with databases[0] as plain, databases[1] as twin:
        fragments = [{f.key: (f.provides, f.requires, f.entry) for f in each.fragments()} for each in (plain, twin)]
        assert fragments[0] == fragments[1]
        kernels = [
            load("mini", each).plan(arch="sm_90", **CONFIGURATION).link(use_cache=False) for each in (plain, twin)
        ]
    assert kernels[0].cubin != kernels[1].cubin
    assert machine_code(kernels[0].cubin) == machine_code(kernels[1].cubin)


def test_a_twin_holds_the_sources_as_they_were_compiled(twin_path: Path) -> None:
    directory = twin_directory(twin_path)
    manifest = TwinManifest.read(directory)
    assert manifest is not None
    assert manifest.original == digest_of(twin_path)
    files = set(hashes(directory / SOURCES))
    assert files == set(manifest.files["mini"].values())
    assert len(files) == 2 + 4 + 1  # entrypoints, device functions, their header
    assert "return a + a;" in (directory / SOURCES / SOURCE).read_text()
    assert (directory / SOURCES / "mini" / "op.cuh").read_text() == MINI["op.cuh"]


@pytest.mark.slow
def test_building_again_gives_the_same_twin_from_any_directory(
    tmp_path: Path, twin_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    family = load_family(write_family(tmp_path / "elsewhere", MINI))
    path = tmp_path / twin_path.name
    for _ in range(2):
        build([family], path, jobs=1)
        assert build_twin([family], path, jobs=1) == twin_directory(path)
        assert hashes(twin_directory(path)) == hashes(twin_directory(twin_path))
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.slow
def test_a_failed_build_leaves_the_old_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = TwinManifest("old", {})
    (tmp_path / "mini.lineinfo").mkdir()
    old.write(tmp_path / "mini.lineinfo")
    wrong = MINI | {"op.cu.jinja": MINI["op.cu.jinja"].replace("{{expr}}", "{{expr}} +")}
    family = load_family(write_family(tmp_path / "mini", wrong))
    with raises(CompileError):
        build_twin([family], tmp_path / "mini.fragdb", jobs=1)
    assert TwinManifest.read(tmp_path / "mini.lineinfo") == old
    assert {path.name for path in tmp_path.iterdir()} == {"mini", "mini.lineinfo"}


@pytest.mark.slow
def test_kernels_name_the_files_of_families_that_theirs_uses(tmp_path: Path) -> None:
    write_family(tmp_path, SHARED)
    families = [load_family(tmp_path / name / "family.toml") for name in ("search", "common")]
    path = build(families, tmp_path / "both.fragdb", jobs=1).path
    manifest = TwinManifest.read(build_twin(families, path, jobs=1))
    assert manifest is not None
    assert manifest.files["common"].keys() <= manifest.files["search"].keys()
    assert manifest.find("search", "/scale.cuh") == "search/scale.cuh"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "../outside.cuh",
        "sub/deep.cuh",
    ],
)
def test_every_header_has_a_file_in_the_twin(tmp_path: Path, name: str) -> None:
    files = MINI | {"op.cu.jinja": f'#include "{name}"\n' + MINI["op.cu.jinja"].replace("{{expr}}", "EXPR({{expr}})")}
    write_family(tmp_path / "mini" / "sub", {"x": ""})
    write_family(tmp_path / "mini", {name: "#pragma once\n#define EXPR(x) (x)\n"})
    family = load_family(write_family(tmp_path / "mini", files))
    path = build([family], tmp_path / "mini.fragdb", jobs=1).path
    directory = build_twin([family], path, jobs=1)
    manifest = TwinManifest.read(directory)
    assert manifest is not None
    found = manifest.find("mini", f"/{name}")
    assert found is not None
    assert "EXPR" in (directory / SOURCES / found).read_text()
    assert (directory / SOURCES / found).resolve().is_relative_to((directory / SOURCES).resolve())
