"""Precompiled headers: faster where they pay, the same bytes always, and never an old header."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto import toolkit
from jitlto.build.nvrtc_compiler import Compiler
from jitlto.build.pch import PrecompiledHeaders, hoist, may_be_precompiled
from jitlto.build.unit import Job, Unit
from jitlto.errors import CompileError
from jitlto.fragment import ImageKind
from jitlto.headers import HeaderSearch, Source
from jitlto.versions import Architecture

HEADERS = {
    "constants.cuh": b"#pragma once\n#include <cuda_fp16.h>\n#define ANSWER 41\n",
    "helper.cuh": b"""#pragma once
#include "constants.cuh"
namespace { __device__ __noinline__ int hidden(int x) { return x * 3 + ANSWER; } }
static __device__ int counter = 5;
template <typename T> __device__ inline T twice(T x) { return x + x; }
""",
}
SOURCES = [
    f"""// {number}
#include "constants.cuh"
#include "helper.cuh"

__device__ int f{number}(int x) {{ return hidden(x) + counter++ + twice({number}) + __LINE__; }}
__device__ __half g{number}(__half x) {{ return twice(x); }}
"""
    for number in range(8)
]


def job(
    compiler: Compiler,
    text: str,
    sharers: int,
    headers: dict[str, bytes] = HEADERS,
    options: tuple[str, ...] = ("--std=c++17", "--generate-line-info"),
) -> Job:
    source = HeaderSearch(toolkit.header_roots(), headers).closure(text.encode())
    architectures = (Architecture(75), Architecture(80))
    return Job("nvrtc", compiler.identity, source, architectures, options, tuple(ImageKind), sharers)


def same(one: Unit, other: Unit) -> bool:
    """Equal in all but what is known of the headers read."""
    return all(getattr(one, name) == getattr(other, name) for name in Unit.__slots__ if name != "reads")


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")  # which NVRTC writes into LTO-IR


@pytest.mark.usefixtures("root")
def test_a_precompiled_header_never_changes_the_result() -> None:
    compiler = Compiler()
    plain = [compiler.compile(job(compiler, text, sharers=1)) for text in SOURCES]
    assert (compiler._precompiled.made, compiler._precompiled.used) == (0, 0)
    fast = [compiler.compile(job(compiler, text, sharers=100)) for text in SOURCES]
    assert compiler._precompiled.made == 6  # LTO-IR, PTX and unoptimised code for two architectures
    assert compiler._precompiled.used > 12
    assert all(same(a, b) for a, b in zip(plain, fast, strict=True))


@pytest.mark.usefixtures("root")
def test_a_constant_changed_in_a_precompiled_header_is_seen() -> None:
    compiler = Compiler()
    for text in SOURCES[:4]:
        compiler.compile(job(compiler, text, sharers=100))
    made = compiler._precompiled.made
    assert made
    headers = HEADERS | {"constants.cuh": HEADERS["constants.cuh"].replace(b"41", b"7777")}
    units = [compiler.compile(job(compiler, text, sharers=100, headers=headers)) for text in SOURCES[:4]]
    assert compiler._precompiled.made > made
    for unit in units:
        (ptx,) = [data for kind, _, data in unit.images if kind is ImageKind.PTX]
        assert b"7777" in ptx
    other = Compiler()
    for text, unit in zip(SOURCES[:4], units, strict=True):
        assert same(other.compile(job(other, text, sharers=1, headers=headers)), unit)


@pytest.mark.usefixtures("root")
def test_an_error_reads_as_without_a_precompiled_header() -> None:
    compiler = Compiler()
    wrong = SOURCES[0].replace("return hidden", "return no_such_name + hidden")
    for text in SOURCES[:3]:
        compiler.compile(job(compiler, text, sharers=100))
    logs = []
    for sharers in (1, 100):
        with pytest.raises(CompileError) as caught:
            compiler.compile(job(compiler, wrong, sharers))
        logs.append(caught.value.log)
    assert logs[0] == logs[1]
    assert ".cu(5): error" in logs[0]


@pytest.mark.usefixtures("root")
def test_few_sources_are_not_worth_a_precompiled_header() -> None:
    compiler = Compiler()
    for text in SOURCES:
        compiler.compile(job(compiler, text, sharers=2))
    assert compiler._precompiled.made == 0


@pytest.mark.usefixtures("root")
def test_nothing_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    compiler = Compiler()
    for text in SOURCES[:4]:
        compiler.compile(job(compiler, text, sharers=100))
    assert compiler._precompiled.made
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("root")
def test_the_files_are_bounded() -> None:
    compiler = Compiler()
    compiler._precompiled = PrecompiledHeaders(disk=1)  # the first one is more already
    for text in SOURCES:
        compiler.compile(job(compiler, text, sharers=100))
    assert compiler._precompiled.made == 1


@pytest.mark.usefixtures("root")
@pytest.mark.skipif(toolkit.nvrtc_version().major < 13, reason="NVRTC 12 does not tell which headers it reads")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="traces are made in a fork")
def test_headers_of_branches_not_taken_are_not_read() -> None:
    headers = HEADERS | {
        "main.cuh": b'#include "constants.cuh"\n#if ANSWER == 42\n#include "dead.cuh"\n#endif\n',
        "dead.cuh": b"#define DEAD 1\n",
    }
    compiler = Compiler()
    text = '#include "main.cuh"\n__device__ int f() { return ANSWER; }\n'
    given = job(compiler, text, sharers=100, headers=headers)
    assert "dead.cuh" in given.source.headers
    reads = compiler.compile(given).reads
    assert {"main.cuh", "constants.cuh", "cuda_fp16.h"} <= set(reads)
    assert "dead.cuh" not in reads
    assert set(reads) < set(given.source.headers)
    # The same names with other contents are another question.
    other = headers | {"main.cuh": headers["main.cuh"].replace(b"== 42", b"== 41")}
    assert "dead.cuh" in compiler.compile(job(compiler, text, sharers=100, headers=other)).reads


UNCLEAR = {
    "below the head": ('#include "main.cuh"\n__device__ int x;\n#include "late.cuh"\n', {}),
    "by a digraph": ('#include "main.cuh"\n__device__ int x;\n%:include "late.cuh"\n', {}),
    "by a macro": ('#include "main.cuh"\n#define H "late.cuh"\n#include/**/H\n', {}),
    "asked for by a macro": (
        '#include "main.cuh"\n__device__ int x;\n',
        {"main.cuh": b'#define H "late.cuh"\n#if __has_include(H)\n#endif\n#if 0\n#include "late.cuh"\n#endif\n'},
    ),
}


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("kind", UNCLEAR)
def test_where_it_is_not_clear_what_is_read_all_headers_count(kind: str) -> None:
    text, more = UNCLEAR[kind]
    headers = {"main.cuh": b"#pragma once\n", "late.cuh": b"#pragma once\n", **more}
    compiler = Compiler()
    source = HeaderSearch([], headers).closure((text + "__device__ int f() { return 1; }\n").encode(), ["late.cuh"])
    given = Job("nvrtc", compiler.identity, source, (Architecture(75),), ("--std=c++17",), tuple(ImageKind), 100)
    assert set(compiler.compile(given).reads) == {"main.cuh", "late.cuh"}


@pytest.mark.usefixtures("root")
def test_headers_for_debugging_alone_are_read_too() -> None:
    headers = {"main.cuh": b'#ifdef __CUDACC_DEBUG__\n#include "debug.cuh"\n#endif\n', "debug.cuh": b"#define D 1\n"}
    compiler = Compiler()
    source = HeaderSearch([], headers).closure(b'#include "main.cuh"\n__device__ int f() { return 1; }\n')
    given = Job("nvrtc", compiler.identity, source, (Architecture(75),), ("--std=c++17",), tuple(ImageKind), 100)
    assert set(compiler.compile(given).reads) == {"main.cuh", "debug.cuh"}


ODD_HEADERS = {
    "packed": (
        b"#pragma pack(push, 1)\n",
        "struct S { char a; double b; }; __device__ int size{n}() {{ return sizeof(S) + {n}; }}",
    ),
    "types without linkage": (
        b"namespace { __device__ int g; struct L { int a; }; template <class T> __device__ int tt(T) { return g; } }\n",
        "__device__ int* p{n}() {{ return &g; }} __device__ int t{n}() {{ return tt(L{{1}}) + {n}; }}",
    ),
}


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("kind", ODD_HEADERS)
def test_a_precompiled_header_that_changes_the_result_is_not_used(kind: str) -> None:
    """Even where nobody has looked at the header: the first source is compiled with and without it."""
    header, body = ODD_HEADERS[kind]
    headers = {"odd.cuh": header + HEADERS["constants.cuh"], **HEADERS}
    texts = [
        '#include "odd.cuh"\n' + body.replace("{n}", str(n)).replace("{{", "{").replace("}}", "}") for n in range(4)
    ]
    compiler = Compiler()
    plain = [compiler.compile(job(compiler, text, sharers=1, headers=headers)) for text in texts]
    fast = [compiler.compile(job(compiler, text, sharers=100, headers=headers)) for text in texts]
    assert all(same(a, b) for a, b in zip(plain, fast, strict=True))
    assert not may_be_precompiled(headers.values())


@pytest.mark.parametrize(
    ("header", "safe"),
    [
        (b"#pragma once\n#pragma unroll 4\nnamespace a { int f(); }\nstatic __device__ int x;\n", True),
        (b"#  pragma pack(push, 1)\n", False),
        (b'_Pragma("pack(1)")\n', False),
        (b"namespace\n{ struct L; }\n", False),
        (b"inline auto l = [](int a) { return a; };\n", False),
        (b"// x ??/\n", False),
    ],
)
def test_which_headers_may_be_precompiled(header: bytes, safe: bool) -> None:
    assert may_be_precompiled([b"", header]) is safe


LINES = st.sampled_from(
    [
        '#include "a.h"',
        "  #  include <b.h>  // why",
        "",
        "// comment",
        "/* one line */",
        "/* two",
        "lines */",
        "#pragma once",
        "#line 1",
        "#define X 1",
        "int x;",
        '#include "a.h" \\',
        "#include MACRO",
        "#if 0",
        "#endif",
        "// goes on \\",
    ]
)


@given(st.lists(LINES, max_size=8), st.sampled_from([b"\n", b"\r\n"]))
def test_hoisting_moves_includes_at_the_head_and_nothing_else(lines: list[str], end: bytes) -> None:
    text = end.join(line.encode() for line in lines)
    prefix, rest = hoist(text)
    moved = [line for line in prefix.splitlines() if line]
    assert all(b"#" in line and b"include" in line for line in moved)
    before = [line for line in text.splitlines() if b"include" in line]
    after = [line for line in rest.splitlines() if b"include" in line]
    assert [*moved, *after] == before
    assert rest.startswith(b"#line 1\n")
    # A line stands where it stood after the last `#line 1` at the head.
    kept = rest.split(b"\n")[1:]
    original = text.split(b"\n")[-len(kept) :]
    for new, old in zip(kept, original, strict=True):
        assert new in (old, b"")


def test_hoisting_stops_at_what_an_include_may_depend_on() -> None:
    assert hoist(b'#include "a.h"\n#define X\n#include "b.h"\n') == (
        b'#include "a.h"\n',
        b'#line 1\n\n#define X\n#include "b.h"\n',
    )
    assert hoist(b'#include "i.h"\n#line 1\n// t\n#include "a.h"\nint x;') == (
        b'#include "i.h"\n#include "a.h"\n',
        b"#line 1\n// t\n\nint x;",
    )


def test_sources_without_includes_are_compiled_plainly() -> None:
    compiler = Compiler()
    source = Source(b"__device__ int f() { return 1; }", {})
    given = Job("nvrtc", compiler.identity, source, (Architecture(75),), ("--std=c++17",), tuple(ImageKind), 100)
    for _ in range(3):
        compiler.compile(given)
    assert compiler._precompiled.made == 0
