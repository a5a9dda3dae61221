"""Databases with line information: the same fragments, and the sources that they were compiled from."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from jitlto.base.errors import LinkError
from jitlto.build.lineinfo import with_lineinfo, write_sources
from jitlto.build.pipeline import build
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.cuda.elf import read_sections
from jitlto.database import FragmentDatabase
from jitlto.families.declaration import FamilyDeclaration, change_all, load_family
from jitlto.runtime.family import KernelFamily
from jitlto.source.load import load
from tests.support.errors import raises
from tests.support.families import MINI, write_family
from tests.support.line_information import machine_code

CONFIGURATION = {"data_type": "float", "op_name": "twice"}


def build_with_lines(families: Iterable[FamilyDeclaration], path: Path) -> Path:
    """Build a database, and return the directory of its sources."""
    rendered = RenderedFamilies(change_all(families, with_lineinfo))
    build(rendered, path, jobs=1)
    return write_sources(rendered.requests, path)


@pytest.fixture(scope="module")
def lines_path(mini_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of the family ``mini`` with line information, with its sources beside it."""
    path = tmp_path_factory.mktemp("lines") / mini_path.name
    build_with_lines([load_family(mini_path.with_name("family.toml"))], path)
    return path


def hashes(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_the_fragments_and_their_machine_code_are_those_without_it(mini_path: Path, lines_path: Path) -> None:
    with FragmentDatabase(mini_path) as plain, FragmentDatabase(lines_path) as lines:
        fragments = [{f.key: (f.provides, f.requires, f.entry) for f in each.fragments()} for each in (plain, lines)]
        assert fragments[0] == fragments[1]
        kernels = [
            load("mini", each).plan(arch="sm_90", **CONFIGURATION).link(use_cache=False) for each in (plain, lines)
        ]
    assert kernels[0].cubin != kernels[1].cubin
    assert machine_code(kernels[0].cubin) == machine_code(kernels[1].cubin)
    table = next(each.data for each in read_sections(kernels[1].cubin) if each.name == ".debug_line")
    names = re.findall(r"[\w.-]+\.cuh?", table.decode("latin-1"))
    assert len(names) == 2
    assert all(list(lines_path.with_suffix(".sources").rglob(name)) for name in names)


def test_sources_are_written_as_they_were_compiled(lines_path: Path) -> None:
    sources = lines_path.with_suffix(".sources") / "mini"
    assert len(hashes(sources)) == 2 + 4 + 1  # entrypoints, device functions, their header
    assert sum("return a + a;" in path.read_text() for path in sources.glob("op/*.cu")) == 2
    assert (sources / "op.cuh").read_text() == MINI["op.cuh"]


@pytest.mark.slow
def test_building_again_gives_the_same_from_any_directory(
    tmp_path: Path, lines_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    family = load_family(write_family(tmp_path / "elsewhere", MINI))
    path = tmp_path / lines_path.name
    for _ in range(2):
        sources = build_with_lines([family], path)
        assert path.read_bytes() == lines_path.read_bytes()
        assert hashes(sources) == hashes(lines_path.with_suffix(".sources"))
    assert len(list(tmp_path.iterdir())) == 3


def test_a_plan_links_to_the_same_bytes_wherever_the_database_is(lines_path: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.fragdb"
    moved.write_bytes(lines_path.read_bytes())
    plans = [load("mini", path).plan(arch="sm_90", **CONFIGURATION) for path in (lines_path, moved)]
    assert plans[0].digest == plans[1].digest
    assert plans[0].link(use_cache=False).cubin == plans[1].link(use_cache=False).cubin


def test_line_information_that_nobody_built_is_an_error_that_says_how(mini: KernelFamily) -> None:
    plan = mini.plan(arch="sm_90", link_options={"lineinfo": True}, **CONFIGURATION)
    with raises(LinkError, "link-option-late", "lineinfo", hint="--lineinfo"):
        plan.link()


@pytest.mark.slow
def test_every_header_has_a_file_among_the_sources(tmp_path: Path) -> None:
    headers = {"../outside.cuh": "#define OUTSIDE(x) (x)\n", "sub/deep.cuh": "#define DEEP(x) OUTSIDE(x)\n"}
    included = "".join(f'#include "{name}"\n' for name in headers)
    files = MINI | {"op.cu.jinja": included + MINI["op.cu.jinja"].replace("{{expr}}", "DEEP({{expr}})")}
    (tmp_path / "mini" / "sub").mkdir(parents=True)
    family = load_family(write_family(tmp_path / "mini", files | headers))
    sources = build_with_lines([family], tmp_path / "mini.fragdb")
    for name, text in headers.items():
        assert (sources / "mini" / name.removeprefix("../")).read_text() == text


@pytest.mark.slow
def test_headers_of_one_name_in_two_directories_are_both_among_the_sources(tmp_path: Path) -> None:
    files = {
        "family.toml": '[family]\nname = "two"\ninclude = ["one", "two"]\n'
        '[entrypoint.k]\nmatrix = "m.json"\ntemplate = "k.cu"\nkey = ["n"]\n',
        "m.json": '{"n": ["1"]}',
        "k.cu": '#include "x.cuh"\n#include "sub/y.cuh"\n__global__ void k(int* o) { *o = first + second + {{n}}; }\n',
        "one/x.cuh": "#define first 1\n",
        "two/x.cuh": "#define second 2\n",
        "two/sub/y.cuh": '#include "../x.cuh"\n',
    }
    family = load_family(write_family(tmp_path / "two", files))
    sources = build_with_lines([family], tmp_path / "two.fragdb") / "two"
    assert (sources / "x.cuh").read_text() == files["one/x.cuh"]
    assert (sources / "+1" / "x.cuh").read_text() == files["two/x.cuh"]
