"""Precompiled headers: faster where they pay, the same bytes always, and never an old header."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto import toolkit
from jitlto.build.nvrtc_compiler import Compiler
from jitlto.build.pch import PrecompiledHeaders, hoist
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
        "late.cuh": b"#define LATE 1\n",
    }
    compiler = Compiler()
    text = '#include "main.cuh"\n__device__ int f() { return ANSWER; }\n#include "late.cuh"\n'
    given = job(compiler, text, sharers=100, headers=headers)
    assert "dead.cuh" in given.source.headers
    reads = compiler.compile(given).reads
    assert {"main.cuh", "constants.cuh", "cuda_fp16.h", "late.cuh"} <= set(reads)
    assert "dead.cuh" not in reads
    assert set(reads) < set(given.source.headers)


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
