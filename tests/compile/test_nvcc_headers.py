"""What nvcc reads in a family's include directories is what `nvcc -I` reads there, and decides what is rebuilt."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from jitlto.base.errors import ToolchainError, VersionError
from jitlto.base.versions import Architecture
from jitlto.build.cache.cache import Cache, open_cache
from jitlto.build.pipeline import BuildReport, build
from jitlto.compile.headers import HeaderSearch
from jitlto.compile.nvcc import Compiler
from jitlto.cuda.nvjitlink import InputKind, LinkInput, link
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import Source
from tests.support.families import write_family

pytestmark = pytest.mark.slow

FAMILY = {
    "family.toml": '[family]\nname = "shadow"\ntoolchain = "nvcc"\ninclude = ["inc", "more"]\n'
    'images = ["ltoir", "ptx"]\n[entrypoint.kernel]\nmatrix = "kernel.json"\ntemplate = "kernel.cu.jinja"\n'
    'key = ["number"]\nparams = ["int* out"]\n',
    "kernel.json": '{"number": ["7"]}',
    "more/unused.h": "",
}
KERNEL = 'extern "C" __global__ void kernel(int* out) { *out = %s + {{number}}; }\n'
SHADOW = "#pragma once\n#define THRUST_VERSION 1\n"


@pytest.fixture(scope="module", autouse=True)
def compiler() -> Compiler:
    try:
        return Compiler()
    except ToolchainError as error:
        pytest.skip(error.what)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    opened = open_cache(tmp_path / "cache")
    assert opened is not None
    return opened


def made(directory: Path, files: Mapping[str, str], cache: Cache | None = None) -> tuple[str, BuildReport]:
    """The PTX of the family's kernel."""
    path = write_family(directory, {**FAMILY, **files})
    report = build([declaration.load_family(path)], directory / "out.fragdb", jobs=1, cache=cache)
    with FragmentDatabase(report.path) as database:
        (fragment,) = database.fragments()
        (image,) = [image for image in fragment.images if image.kind is ImageKind.LTOIR]
        inputs = [LinkInput(InputKind.FATBIN, database.read(image), "kernel")]
    try:
        return link(inputs, Architecture(90), ["-lto"], ptx=True).data.decode(), report
    except VersionError as error:
        pytest.skip(error.what)


def test_a_header_that_a_macro_names_is_the_one_that_shadows_the_toolkits(tmp_path: Path, cache: Cache) -> None:
    files = {
        "inc/lib.h": "#define WHICH <thrust/version.h>\n#include WHICH\n",
        "inc/thrust/version.h": SHADOW,
        "kernel.cu.jinja": "#include <lib.h>\n" + KERNEL % "THRUST_VERSION",
    }
    assert ", 8;" in made(tmp_path, files, cache)[0]
    assert made(tmp_path, files, cache)[1].compiled == 0
    changed, report = made(tmp_path, files | {"inc/thrust/version.h": SHADOW.replace("1", "2")}, cache)
    assert ", 9;" in changed and report.compiled == 1


def test_a_header_of_the_toolkit_reads_those_of_the_family(tmp_path: Path, cache: Cache) -> None:
    files = {
        "kernel.cu.jinja": "#include <thrust/version.h>\n" + KERNEL % "VALUE",
        "more/cuda/version": "#include_next <cuda/version>\n#include <more.h>\n",
        "more/more.h": "#define VALUE 100\n",
        "inc/unused.h": "",
    }
    assert ", 107;" in made(tmp_path, files, cache)[0]
    assert made(tmp_path, files | {"more/unused.h": "#error\n"}, cache)[1].compiled == 0
    changed, report = made(tmp_path, files | {"more/more.h": "#define VALUE 101\n"}, cache)
    assert ", 108;" in changed and report.compiled == 1


def test_a_header_that_appears_before_one_that_the_toolkit_read_rebuilds(tmp_path: Path, cache: Cache) -> None:
    files = {
        "kernel.cu.jinja": "#include <cstdint>\n#ifndef V\n#define V 1\n#endif\n" + KERNEL % "V",
        "inc/unused.h": "",
    }
    assert ", 8;" in made(tmp_path, files, cache)[0]
    text, report = made(tmp_path, files | {"more/stdint.h": "#include_next <stdint.h>\n#define V 3\n"}, cache)
    assert ", 10;" in text and report.compiled == 1


def test_what_no_compiler_could_mean_is_not_given(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_text("")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "round").symlink_to(tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path / "sub", target_is_directory=True)
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "gone").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "sub" / "a.h").write_text("a")
    (tmp_path / "large.bin").write_bytes(bytes(5 << 20))
    search = HeaderSearch([tmp_path / "sub", tmp_path], as_written=True)
    given = search.complete(Source(b"", {"b.h": b"b"})).headers
    assert given == {"a.h": b"a", "b.h": b"b", "+1//sub/a.h": b"a", "+1//linked/a.h": b"a"}
