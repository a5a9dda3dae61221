"""Twins with line information: the same fragments, and the sources that they were compiled from, each time the same."""

import hashlib
import re
from pathlib import Path

import pytest

from jitlto.base.errors import CompileError
from jitlto.base.files import digest_of
from jitlto.build.lineinfo import build_twin
from jitlto.build.pipeline import build
from jitlto.cuda.elf import read_sections
from jitlto.database import FragmentDatabase
from jitlto.database.twin import SOURCES, mark_twin, read_original, twin_directory
from jitlto.families.declaration import load_family
from jitlto.source.load import load
from tests.support.errors import raises
from tests.support.families import MINI, write_family
from tests.support.line_information import machine_code

CONFIGURATION = {"data_type": "float", "op_name": "twice"}


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
    table = next(each.data for each in read_sections(kernels[1].cubin) if each.name == ".debug_line")
    names = re.findall(r"[\w.-]+\.cuh?", table.decode("latin-1"))
    assert len(names) == 2
    assert all(list((twin_directory(twin_path) / SOURCES).rglob(name)) for name in names)


def test_a_twin_holds_the_sources_as_they_were_compiled(twin_path: Path) -> None:
    assert read_original(twin_directory(twin_path)) == digest_of(twin_path)
    sources = twin_directory(twin_path) / SOURCES / "mini"
    assert len(hashes(sources)) == 2 + 4 + 1  # entrypoints, device functions, their header
    assert sum("return a + a;" in path.read_text() for path in sources.glob("op/*.cu")) == 2
    assert (sources / "op.cuh").read_text() == MINI["op.cuh"]


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
    (tmp_path / "mini.lineinfo").mkdir()
    mark_twin(tmp_path / "mini.lineinfo", "old")
    wrong = MINI | {"op.cu.jinja": MINI["op.cu.jinja"].replace("{{expr}}", "{{expr}} +")}
    family = load_family(write_family(tmp_path / "mini", wrong))
    with raises(CompileError):
        build_twin([family], tmp_path / "mini.fragdb", jobs=1)
    assert read_original(tmp_path / "mini.lineinfo") == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"mini", "mini.lineinfo"}


@pytest.mark.slow
def test_every_header_has_a_file_in_the_twin(tmp_path: Path) -> None:
    headers = {"../outside.cuh": "#define OUTSIDE(x) (x)\n", "sub/deep.cuh": "#define DEEP(x) OUTSIDE(x)\n"}
    included = "".join(f'#include "{name}"\n' for name in headers)
    files = MINI | {"op.cu.jinja": included + MINI["op.cu.jinja"].replace("{{expr}}", "DEEP({{expr}})")}
    (tmp_path / "mini" / "sub").mkdir(parents=True)
    family = load_family(write_family(tmp_path / "mini", files | headers))
    path = build([family], tmp_path / "mini.fragdb", jobs=1).path
    sources = build_twin([family], path, jobs=1) / SOURCES
    for name, text in headers.items():
        assert (sources / "mini" / name.removeprefix("../")).read_text() == text


@pytest.mark.slow
def test_headers_of_one_name_in_two_directories_are_both_in_a_twin(tmp_path: Path) -> None:
    files = {
        "family.toml": '[family]\nname = "two"\ninclude = ["one", "two"]\n'
        '[entrypoint.k]\nmatrix = "m.json"\ntemplate = "k.cu"\nkey = ["n"]\n',
        "m.json": '{"n": ["1"]}',
        "k.cu": '#include "x.cuh"\n#include "sub/y.cuh"\n__global__ void k(int* o) { *o = first + second + {{n}}; }\n',
        "one/x.cuh": "#define first 1\n",
        "two/x.cuh": "#define second 2\n",
        "two/sub/y.cuh": '#include "../x.cuh"\n',
    }
    path = tmp_path / "two.fragdb"
    families = [load_family(write_family(tmp_path / "two", files))]
    build(families, path, jobs=1)
    sources = build_twin(families, path, jobs=1) / SOURCES / "two"
    assert (sources / "x.cuh").read_text() == files["one/x.cuh"]
    assert (sources / "+1" / "x.cuh").read_text() == files["two/x.cuh"]
