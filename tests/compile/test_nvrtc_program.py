"""Compiling with NVRTC: the same bytes everywhere, and errors that help."""

import hashlib
from pathlib import Path

import pytest

from jitlto.base.diagnostic import Location
from jitlto.base.errors import CompileError, JitltoError
from jitlto.base.versions import Architecture
from jitlto.compile import diagnostics
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.headers import HeaderSearch
from jitlto.cuda.nvjitlink import InputKind, LinkInput, link
from jitlto.record.headers import Source
from tests.support.compiled import compile_source
from tests.support.errors import raises
from tests.support.process import output_of

BASE = [Architecture(75)]
OPTIONS = ["--std=c++17"]

INTERNAL = """
#include "helper.h"
namespace { __device__ __noinline__ int hidden(int x) { return x * 3 + 1; } }
static __device__ int counter = 5;
__device__ int visible(int x) { return hidden(x) + counter++ + helper(x); }
"""
HELPER = """#pragma once
static __device__ int table[4] = {1, 2, 3, 4};
static __device__ __noinline__ int helper(int x) { return table[x & 3]; }
"""

STATIC = """
static __device__ int counter = FACTOR;
static __device__ __noinline__ int help(int x) { return x * FACTOR + counter++; }
__device__ int visible(int x) { return help(x) + help(x + 1); }
"""
CALLER = """
__device__ int visible(int);
__device__ int other(int);
extern "C" __global__ void kernel(int* out) { *out = visible(*out) + other(*out); }
"""

SCRIPT = """
import hashlib, sys
from pathlib import Path
from jitlto.compile.headers import HeaderSearch
from jitlto.cuda.nvjitlink import InputKind, LinkInput, link
from tests.support.compiled import compile_source
from jitlto.base.versions import Architecture
root = Path(sys.argv[1])
source = HeaderSearch([root]).closure((root / "source.cu").read_bytes())
c = compile_source(source, [Architecture(75), Architecture(80)], ["--std=c++17"])
print(*(hashlib.sha256(data).hexdigest() for data in (*c.ltoir.values(), c.ptx.encode())))
"""


def source(text: str, headers: dict[str, bytes] | None = None) -> Source:
    return Source(text.encode(), headers or {})


def failure(text: str, roots: list[Path] | None = None) -> CompileError:
    with pytest.raises(CompileError) as caught:
        compile_source(HeaderSearch(roots or []).closure(text.encode()), BASE, OPTIONS)
    return caught.value


@pytest.mark.slow
def test_the_same_bytes_in_every_process_and_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = []
    for number, name in enumerate(("here", "a longer path/there")):
        root = tmp_path / name
        root.mkdir(parents=True)
        (root / "helper.h").write_text(HELPER)
        (root / "source.cu").write_text(INTERNAL)
        outputs.append(output_of(SCRIPT, root, cwd=Path("/"), TMPDIR=str(root), PYTHONHASHSEED=str(number)))
    assert outputs[0] == outputs[1]
    monkeypatch.chdir("/")  # which NVRTC writes into LTO-IR
    here = compile_source(
        HeaderSearch([], {"helper.h": HELPER.encode()}).closure(INTERNAL.encode()),
        [Architecture(75), Architecture(80)],
        OPTIONS,
    )
    assert hashlib.sha256(here.ptx.encode()).hexdigest() in outputs[0]
    assert all(hashlib.sha256(data).hexdigest() in outputs[0] for data in here.ltoir.values())


@pytest.mark.slow
def test_sources_with_one_head_have_internal_symbols_of_their_own() -> None:
    """Their programs have one name, of which the names of internal symbols are made."""
    names = []
    for function in ("first", "second"):
        text = INTERNAL.replace("visible", function).replace("3 + 1", f"{len(function)} + 1").encode()
        compiled = compile_source(Source(text, {"helper.h": HELPER.encode()}), BASE, OPTIONS)
        names.append({d.name for d in compiled.module.declarations.values() if "INTERNAL" in d.name})
    assert len(names[0]) == len(names[1]) > 1
    assert not names[0] & names[1]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["lto", "ptx"])
def test_internal_symbols_are_apart_even_if_their_names_are_equal(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A linked kernel carries these names, so they are short; chance could make two programs' equal."""
    monkeypatch.setattr(nvrtc, "program_name", lambda _: "equal.cu")
    texts = [STATIC.replace("FACTOR", factor) for factor in ("1003", "1005")]
    texts = [texts[0], texts[1].replace("visible", "other"), CALLER]
    inputs = []
    for text in texts:
        compiled = compile_source(source(text), BASE, OPTIONS)
        data = compiled.ltoir[BASE[0]] if mode == "lto" else compiled.ptx.encode()
        inputs.append(LinkInput(InputKind.LTOIR if mode == "lto" else InputKind.PTX, data, "input"))
    if mode == "lto":
        linked = link(inputs, BASE[0], ["-lto"], ptx=True).data.decode()
        assert linked.count("1003") == linked.count("1005") > 0
    else:
        assert b"equal" in link(inputs, BASE[0], []).data


def test_a_refused_source_gives_the_compilers_words() -> None:
    error = failure("__device__ int f() {\n  return undefined_name;\n}\n")
    assert 'identifier "undefined_name" is undefined' in error.log
    assert ".cu(2): error" in error.log
    assert "\0" not in error.log


def test_a_refused_option_is_a_compile_error_that_names_it() -> None:
    with pytest.raises(CompileError) as caught:
        compile_source(source(""), BASE, ["--no-such-option"])
    assert "--no-such-option" in caught.value.log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "instead"),
    [("cstdint", "cstdint"), ("stdint.h", "cstdint"), ("type_traits", "type_traits"), ("math.h", "cmath")],
)
def test_a_header_of_the_host_library_is_answered_with_the_device_one(name: str, instead: str) -> None:
    assert f"include <cuda/std/{instead}> instead of <{name}>" in str(failure(f"#include <{name}>\n").hint)


@pytest.mark.parametrize("name", ["stdio.h", "iostream", "vector", "cstdio", "pthread.h", "sys/types.h"])
def test_a_host_header_without_a_device_one_is_to_be_removed(name: str) -> None:
    hint = str(failure(f"#include <{name}>\n").hint)
    assert "NVRTC" in hint and "remove" in hint and "cuda/std" not in hint


def annotate(error: CompileError, name: str) -> CompileError:
    return diagnostics.annotate(error, name, Location("my.toml"), Location)


def test_a_source_may_be_named_after_a_value_with_a_space(tmp_path: Path) -> None:
    name = "f/g[type=unsigned char].cu"
    assert annotate(failure("\nint x = y;\n"), name).where == f"{name}:2"


def test_an_include_of_a_host_header_is_the_only_error(tmp_path: Path) -> None:
    (tmp_path / "host.h").write_text("".join(f"void f{n}();\n" for n in range(50)) + "#include <vector>\n")
    error = failure('#include "host.h"\nstd::vector<int> v;\n', [tmp_path])
    assert error.log.count("error: ") > 50
    (line,) = str(annotate(error, "my.cu")).partition("\n  hint: ")[0].splitlines()
    assert line.startswith("host.h:51: includes <vector>")


def test_a_toolkits_header_for_the_host_is_one_error_with_the_line_that_includes_it(tmp_path: Path) -> None:
    (tmp_path / "deep.h").write_text("".join(f"void f{n}();\n" for n in range(50)))
    (tmp_path / "tool.h").write_text('#include "deep.h"\ntemplate <class T> __device__ int g(T a) { return a.x; }\n')
    (tmp_path / "own.h").write_text("\n#include <tool.h>\n")
    headers = HeaderSearch([tmp_path]).closure(b'#include "own.h"\n').headers
    own = {"own.h": headers["own.h"]}
    error = failure('#include "own.h"\n', [tmp_path])
    found = diagnostics.find_include(error, own, headers)
    assert found is not None
    assert found.where == "own.h:2"
    assert found.what.startswith("includes <tool.h>")
    assert "deep.h(1)" in found.what
    assert "__CUDACC_RTC__" in str(found.hint)
    assert diagnostics.find_include(error, headers, headers) is None, "the error is in an author's header"
    (tmp_path / "deep.h").write_text("")
    error = failure('#include "own.h"\n__global__ void k(int* a) { *a = g(1); }\n', [tmp_path])
    assert diagnostics.find_include(error, own, headers) is None, "what the author's code makes of a template"


def test_only_headers_that_cuda_std_has_are_offered_from_there() -> None:
    assert "std_headers = true" in str(failure("#include <cstdint>\n").hint)
    assert "std_headers" not in str(failure("#include <random>\n").hint)


def test_another_missing_header_is_named() -> None:
    error = failure('#include "no/such.h"\n')
    assert diagnostics.find_missing_header(error.log) == "no/such.h"
    assert error.code == "compile-missing-header"
    assert str(error.hint).startswith("no/such.h is not beside")


@pytest.mark.slow
def test_nothing_is_read_that_was_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outside.h").write_text("#define VALUE 1\n")
    monkeypatch.chdir(tmp_path)
    deep = {"deep/a.h": b'#include "outside.h"\n', "deep/b.h": b'#include "../outside.h"\n'}
    text = "#include {}\n__device__ int f() {{ return VALUE; }}\n"
    for include in ['"outside.h"', "<outside.h>", *map("<{}>".format, deep)]:
        with pytest.raises(CompileError) as caught:
            compile_source(HeaderSearch([], deep).closure(text.format(include).encode()), BASE, OPTIONS)
        assert "outside.h" in caught.value.log
    for include in [f'"{tmp_path}/outside.h"', f"<{tmp_path}/outside.h>"]:
        with raises(JitltoError, "jitlto-header-absolute", "outside.h"):
            HeaderSearch([], deep).closure(text.format(include).encode())


def test_an_error_is_where_its_line_is_and_names_the_word_there() -> None:
    error = annotate(failure("\n  __device__ int f() { return wrong; }\n"), "name.cu")
    assert "name.cu(2): error" in error.log
    assert error.where == "name.cu:2"
    assert 'identifier "wrong" is undefined' in error.what
    assert diagnostics.word_at_error(error.log) == "wrong"
    assert diagnostics.word_at_error("") is None
