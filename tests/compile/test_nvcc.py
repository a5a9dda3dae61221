"""nvcc: the same bytes everywhere, all headers read are reported, and errors have NVRTC's format."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from jitlto.base.errors import CompileError, ToolchainError
from jitlto.base.versions import Architecture
from jitlto.build.cache.cache import Unit, decode, encode_unit
from jitlto.build.pipeline import build
from jitlto.compile import diagnostics, nvcc
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.compiler import CompiledSource, CompileJob
from jitlto.compile.headers import HeaderSearch
from jitlto.compile.nvcc import Compiler
from jitlto.cuda import nvjitlink, toolkit
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.record.fragment import ImageKind
from jitlto.runtime.family import KernelFamily
from tests.compile.test_nvrtc_program import annotate
from tests.support.compiled import forms
from tests.support.errors import raises
from tests.support.families import MINI, write_family

BASE = (Architecture(75),)
BOTH = (ImageKind.LTOIR, ImageKind.PTX)
OPTIONS = ("--std=c++17",)
INTERNAL = """#include "deep/helper.h"
#include <cassert>
#include <cuda_fp16.h>
#include <thrust/version.h>
namespace { __device__ int counter; __device__ __noinline__ int hidden(int x) { return x * 3 + counter; } }
static __device__ int table[4];
static __device__ __noinline__ int help(int x) { return table[x & 3] + x; }
__device__ int f(int x) { assert(x); counter++; table[x & 3] = x; return hidden(x) + help(x) + helper(x); }
__device__ __half g(__half x) { return x + x; }
__device__ const char* where() { return __FILE__; }
"""
HELPER = "#pragma once\nstatic __device__ int helper(int x) { return x + 1; }\n"
SCRIPT = """
import hashlib
import sys
from pathlib import Path
from jitlto.compile.nvcc import Compiler
from jitlto.build.cache.cache import Unit, encode_unit
from jitlto.compile.compiler import CompileJob
from jitlto.record.fragment import ImageKind
from jitlto.compile.headers import HeaderSearch
from jitlto.base.versions import Architecture
root = Path(sys.argv[1])
source = HeaderSearch([root], as_written=True).closure((root / "source.cu").read_bytes())
compiler = Compiler()
architectures = (Architecture(75), Architecture(80))
options = ("--std=c++17", *sys.argv[2:])
images = tuple((kind, each) for kind in list(ImageKind)[:2] for each in architectures)
job = CompileJob("nvcc", compiler.identity, source, architectures, options, images)
compiled = encode_unit(Unit(compiler.compile(job), {}))
print(hashlib.sha256(compiled).hexdigest())
"""


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    try:
        return Compiler()
    except ToolchainError as error:
        pytest.skip(error.what)


def compile_text(
    compiler: Compiler,
    text: str,
    headers: dict[str, str] | None = None,
    architectures: tuple[Architecture, ...] = BASE,
    options: tuple[str, ...] = OPTIONS,
    images: tuple[ImageKind, ...] = (ImageKind.PTX,),
) -> CompiledSource:
    search = HeaderSearch([], {name: content.encode() for name, content in (headers or {}).items()}, as_written=True)
    source, wanted = search.closure(text.encode()), forms(architectures, images)
    return compiler.compile(CompileJob("nvcc", compiler.identity, source, architectures, options, wanted))


@pytest.fixture(scope="module")
def nvcc_mini(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelFamily]:
    """A kernel of the family ``mini``, compiled with nvcc."""
    directory = tmp_path_factory.mktemp("mini")
    toml = MINI["family.toml"].replace('name = "mini"', 'name = "mini"\ntoolchain = "nvcc"\nsass = ["75", "90"]')
    operation = '{"data_type": "float", "op_name": "square", "expr": "a * a"}'
    matrices = {"kern.json": '{"data_type": "float"}', "op.json": operation}
    path = write_family(directory, MINI | matrices | {"family.toml": toml})
    report = build([declaration.load_family(path)], directory / "mini.fragdb", jobs=1)
    with FragmentDatabase(report.path) as database:
        yield KernelFamily("mini", database)


def refused(compiler: Compiler, text: str, headers: dict[str, str] | None = None, *options: str) -> CompileError:
    with pytest.raises(CompileError) as caught:
        compile_text(compiler, text, headers, options=options)
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--generate-line-info"]])
def test_the_same_bytes_in_every_process_and_directory(compiler: Compiler, tmp_path: Path, options: list[str]) -> None:
    repository = str(Path(nvcc.__file__).parents[2])
    results = []
    for number, name in enumerate(("here", "a longer path/there")):
        root = tmp_path / name
        (root / "deep").mkdir(parents=True)
        (root / "deep" / "helper.h").write_text(HELPER)
        (root / "source.cu").write_text(INTERNAL)
        environment = os.environ | {"PYTHONPATH": repository, "TMPDIR": str(root), "PYTHONHASHSEED": str(number)}
        results.append(
            subprocess.run(
                [sys.executable, "-c", SCRIPT, str(root), *options], cwd=root, env=environment, text=True, check=True,
                stdout=subprocess.PIPE,
            ).stdout
        )  # fmt: skip
        assert {path.name for path in root.iterdir()} == {"deep", "source.cu"}
    assert results[0] == results[1]


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_toolkits_directory(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = compile_text(compiler, INTERNAL, {"deep/helper.h": HELPER}, images=BOTH)
    (tmp_path / "moved").symlink_to(compiler._top)
    found = str(tmp_path / "moved" / Path(compiler._nvcc).relative_to("toolkit"))
    monkeypatch.setattr(toolkit, "find_binary", lambda name: found)
    moved = Compiler()
    assert moved._top == tmp_path / "moved"
    assert moved.identity == compiler.identity
    assert compile_text(moved, INTERNAL, {"deep/helper.h": HELPER}, images=BOTH) == here


@pytest.mark.slow
def test_environment_variables_that_change_the_result_are_ignored(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "#ifdef HEARD\n#error heard\n#endif\n#if __has_include(<outside.h>)\n#error found\n#endif\n"
    (tmp_path / "outside.h").write_text("")
    for name in ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"):
        monkeypatch.setenv(name, "-DHEARD")
    for name in ("CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert compile_text(Compiler(), text).provides == ()


@pytest.mark.slow
def test_a_compile_gives_symbols_and_images(compiler: Compiler) -> None:
    text = """__device__ float other(float);
__device__ int counter = 1;
__global__ void kern(float* x, char n) { x[n] = other(x[n]) + counter; }
"""
    architectures = (Architecture(75), Architecture(90))
    compiled = compile_text(compiler, text, architectures=architectures, images=BOTH)
    assert compiled.toolchain == "nvcc"
    assert compiled.version == compiler.version
    assert compiled.target == Architecture(75)
    assert {s.name for s in compiled.provides} == {"_Z4kernPfc", "counter"}
    assert [s.name for s in compiled.requires] == ["_Z5otherf"]
    assert compiled.kernels == (("_Z4kernPfc", ((8, 8), (1, 1))),)
    assert [(kind, architecture) for kind, architecture, _ in compiled.images] == [
        (ImageKind.LTOIR, Architecture(75)), (ImageKind.LTOIR, Architecture(90)), (ImageKind.PTX, Architecture(75)),
    ]  # fmt: skip
    kept = decode(encode_unit(Unit(compiled, {})), Unit)
    assert kept is not None and kept.compiled == replace(compiled, reads=())


@pytest.mark.slow
def test_headers_of_every_architecture_are_reported(compiler: Compiler) -> None:
    text = """#if __CUDA_ARCH__ == 750
#include "deep/low.h"
#elif __CUDA_ARCH__ == 800
#include "high.h"
#else
#include "never.h"
#endif
#include <cuda_fp16.h>
#include <cstdint>
"""
    headers = {"deep/low.h": '#include "beside.h"\n', "deep/beside.h": "", "high.h": "", "never.h": ""}
    compiled = compile_text(compiler, text, headers, (Architecture(75), Architecture(80)))
    own = [name for name in compiled.reads if not name.startswith("<")]
    assert own == ["deep/beside.h", "deep/low.h", "high.h"]
    found = {name.partition(">/")[2] for name in compiled.reads}
    assert {"cuda_fp16.h", "cstdint"} <= found
    search = HeaderSearch([], dict.fromkeys(headers, b""), system=compiler.header_roots(), as_written=True)
    assert None not in map(search.sha256, compiled.reads)
    assert search.sha256("<0>/no/such.h") is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\n  int f() { return nope; }\n", 'error: identifier "nope" is undefined'),
        ("\n#include <no/such.h>\n", 'catastrophic error: cannot open source file "no/such.h"'),
    ],
)
def test_errors_have_the_form_of_nvrtcs_and_mark_the_line(compiler: Compiler, text: str, says: str) -> None:
    error = refused(compiler, text)
    assert f"{nvrtc.program_name(text.encode())}(2): {says}" in error.log
    assert annotate(error, "name.cu").where == "name.cu:2"


@pytest.mark.slow
@pytest.mark.parametrize("line", ["int f() { return nope; }", "#error nope"])
def test_an_error_in_a_header_has_its_name(compiler: Compiler, line: str) -> None:
    error = refused(compiler, '#include "deep/bad.h"\n', {"deep/bad.h": f"\n{line}\n"})
    assert "deep/bad.h(2): error" in error.log
    assert "include/deep" not in error.log


@pytest.mark.slow
def test_a_missing_header_is_named_and_hinted(compiler: Compiler) -> None:
    error = refused(compiler, '#define NAME "no/such.h"\n#include NAME\n')
    assert diagnostics.find_missing_header(error.log) == "no/such.h"
    assert str(error.hint).startswith("no/such.h is not beside")


def test_a_refused_option_is_a_compile_error_that_names_it(compiler: Compiler) -> None:
    assert "--no-such-option" in refused(compiler, "", None, "--no-such-option").log


@pytest.mark.usefixtures("compiler")  # which is there
def test_a_missing_host_compiler_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC_CCBIN", "no-such-compiler")
    with raises(ToolchainError, "toolchain-missing", "no-such-compiler", hint="g++"):
        Compiler()


def test_a_missing_nvcc_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "find_binary", lambda name: None)
    with raises(ToolchainError, "toolchain-missing", "nvcc", hint="nvidia-cuda-nvcc"):
        Compiler()


@pytest.mark.slow
def test_another_program_of_the_same_version_is_another_identity(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = tmp_path / "gcc"
    identities = []
    monkeypatch.setenv("NVCC_CCBIN", str(host))
    for options in ("", "-DWRAPPED "):
        host.write_text(f'#!/bin/sh\nexec {compiler.host_path} {options}"$@"\n')
        host.chmod(0o755)
        identities.append(Compiler().identity)
    assert len({compiler.identity, *identities}) == 3


@pytest.mark.slow
def test_an_absolute_path_that_macros_make_is_refused(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "h.h").write_text("")
    with raises(CompileError, "compile-absolute-include", str(tmp_path)):
        compile_text(compiler, f'#define PATH "{tmp_path}/h.h"\n#include PATH\n')


@pytest.mark.slow
def test_the_include_directories_are_searched_in_order_beside_the_includer_first(
    compiler: Compiler, tmp_path: Path
) -> None:
    files = {
        "a/k.h": "#define A\n#include_next <k.h>\n",
        "b/k.h": "#define B\n",
        "b/h.h": '#define NAME "near.h"\n#include NAME\n',
        "b/near.h": "#define NEAR\n",
        "a/near.h": "#error\n",
        "common.h": "#define COMMON\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    text = b"""#include <k.h>
#include "h.h"
#include "../common.h"
#if !defined(A) || !defined(B) || !defined(NEAR) || !defined(COMMON) || __has_include("include/k.h")
#error
#endif
"""
    search = HeaderSearch([tmp_path / "a", tmp_path / "b"], as_written=True)
    compiled = compiler.compile(
        CompileJob("nvcc", compiler.identity, search.closure(text), BASE, OPTIONS, forms(BASE, (ImageKind.PTX,)))
    )
    own = [name for name in compiled.reads if not name.startswith("<")]
    assert own == ["+1//h.h", "+1//k.h", "+1//near.h", "../common.h", "k.h"]
    assert all(search.find(name) is not None for name in own)


def test_a_killed_nvcc_is_an_error_with_the_signal(compiler: Compiler, tmp_path: Path) -> None:
    killed = Compiler()
    script = tmp_path / "toolkit" / "bin" / "nvcc"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\nkill -KILL $$\n")
    script.chmod(0o755)
    killed._top, killed._nvcc = tmp_path / "toolkit", "toolkit/bin/nvcc"
    with raises(ToolchainError, "toolchain-killed", "nvcc", "SIGKILL"):
        compile_text(killed, "")


@pytest.mark.slow
@pytest.mark.parametrize("link_mode", ["lto", "ptx", "sass"])
def test_a_family_made_with_nvcc_is_planned_and_linked(
    compiler: Compiler, nvcc_mini: KernelFamily, link_mode: Literal["lto", "ptx", "sass"]
) -> None:
    if nvjitlink.version() < compiler.version:
        pytest.skip("nvJitLink is older than nvcc")
    plan = nvcc_mini.plan(data_type="float", op_name="square", link_mode=link_mode)
    assert {image.toolchain for fragment in plan.fragments for image in fragment.images} == {"nvcc"}
    assert plan.link(arch="sm_90").cubin[:4] == b"\x7fELF"
