"""Compiling in worker processes: each source once, errors in terms of the template, no hang when a worker dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from jitlto import toolkit
from jitlto.build.compiler import Unit, compile_all, default_jobs
from jitlto.build.render import Rendered
from jitlto.errors import BuildError, CompileError
from jitlto.family import Group
from jitlto.fragment import FragmentKey, Role
from jitlto.headers import HeaderSearch
from jitlto.versions import Architecture


def rendered(text: str, number: int = 0) -> Rendered:
    group = Group("g", Role.DEVICE, Path("g.json"), Path("g.cu.jinja"), ("n",), (), None, None, "jinja")
    return Rendered(FragmentKey.make("f", "g", {"n": str(number)}), group, {"n": str(number)}, text, ())


def compile_(
    *sources: Rendered, headers: dict[str, bytes] | None = None, jobs: int = 1, done: object = None
) -> list[Unit]:
    return compile_all(
        sources, HeaderSearch([], headers), [Architecture(75)], ["--std=c++17"], jobs=jobs,
        done=done or (lambda _: None),  # type: ignore[arg-type]
    )  # fmt: skip


def failure(*sources: Rendered, headers: dict[str, bytes] | None = None) -> CompileError:
    with pytest.raises(CompileError) as caught:
        compile_(*sources, headers=headers)
    return caught.value


def test_results_come_in_the_order_of_the_sources() -> None:
    sources = [rendered(f"__device__ int f{n}() {{ return {n}; }}", n) for n in range(5)]
    seen: list[Rendered] = []
    units = compile_(*sources, jobs=2, done=seen.append)
    assert [u.compiled.module.provides[0].name for u in units] == [f"_Z2f{n}v" for n in range(5)]
    assert sorted(s.key for s in seen) == [s.key for s in sources]
    assert all(u.fatbins[Architecture(75)] for u in units)


def test_equal_sources_are_compiled_once_and_all_are_reported() -> None:
    texts = ["__device__ int f() { return 1; }", "__device__ int f() { return 2; }"]
    seen: list[Rendered] = []
    units = compile_(*(rendered(texts[n % 2], n) for n in range(6)), done=seen.append)
    assert all(units[n] is units[n % 2] for n in range(6))
    assert units[0] is not units[1]
    assert len(seen) == 6


def test_no_sources_are_no_work() -> None:
    assert compile_() == []


def test_the_number_of_jobs_does_not_change_the_bytes() -> None:
    sources = [rendered(f"static __device__ int x{n}; __device__ int f{n}() {{ return x{n}; }}", n) for n in range(4)]
    assert [u.fatbins for u in compile_(*sources, jobs=1)] == [u.fatbins for u in compile_(*sources, jobs=3)]


def test_an_error_in_a_template_shows_the_compilers_lines_and_the_source() -> None:
    text = "// one\n// two\n// three\n// four\n__device__ int f() { return wrong_name; }\n// six\n"
    error = failure(rendered("__device__ int ok() { return 1; }", 1), rendered(text, 2))
    assert error.where == "g.cu.jinja (group g, n=2)"
    assert 'f/g[n=2].cu(5): error: identifier "wrong_name" is undefined' in error.what
    assert ">    5 | __device__ int f() { return wrong_name; }" in error.what
    assert "     2 | // two" in error.what
    assert "     6 | // six" in error.what
    assert "// one" not in error.what
    assert "wrong_name" in error.log


def test_an_error_in_a_header_names_the_header_and_its_line() -> None:
    headers = {"outer.h": b'#include "sub/inner.h"\n', "sub/inner.h": b"\n\nint x = ;\n"}
    error = failure(rendered('// first\n#include "outer.h"\n'), headers=headers)
    assert "sub/inner.h(3): error" in error.what
    assert '#include "outer.h"' in error.what
    assert error.where == "g.cu.jinja (group g, n=0)"


def test_a_missing_header_gets_advice() -> None:
    assert "cuda/std/cstdint" in str(failure(rendered("#include <cstdint>\n")).hint)


def test_an_include_through_a_macro_is_followed() -> None:
    headers = {"a.h": b'#define NEXT "b.h"\n#include NEXT\n', "b.h": b"#define VALUE 42\n"}
    (unit,) = compile_(
        rendered('#define FIRST "a.h"\n#include FIRST\n__device__ int f() { return VALUE; }'), headers=headers
    )
    assert "42" in unit.compiled.ptx


def test_an_error_beside_equal_sources_and_many_others_ends_the_build() -> None:
    good = [rendered(f"__device__ int f{n}() {{ return 1; }}", n) for n in range(8)]
    with pytest.raises(CompileError):
        compile_(*good[:4], rendered("wrong", 9), *good[4:], jobs=2)
    assert workers() == []


def workers() -> list[int]:
    """The worker processes of this process."""
    children = [int(c) for path in Path("/proc/self/task").glob("*/children") for c in path.read_text().split()]
    return [c for c in children if b"jitlto.build.workers" in Path(f"/proc/{c}/cmdline").read_bytes()]


def test_a_worker_that_dies_is_an_error_and_no_hang() -> None:
    def kill(_: Rendered) -> None:
        for worker in workers():
            os.kill(worker, signal.SIGKILL)

    # Large headers, so that the second source is still being compiled when the first is done.
    heavy = "#include <cuda/std/tuple>\n#include <cuda/std/variant>\n__device__ int f() { return 2; }\n"
    sources = [rendered("__device__ int f() { return 1; }", 1), rendered(heavy, 2), rendered(heavy + "//", 3)]
    search = HeaderSearch(toolkit.header_roots())
    with pytest.raises(BuildError, match="a compiler process died") as caught:
        compile_all(sources, search, [Architecture(75)], ["--std=c++17"], jobs=1, done=kill)
    assert "g.cu.jinja (group g, n=" in str(caught.value.where)
    assert "memory" in str(caught.value.hint)
    assert workers() == []


def test_workers_are_gone_after_the_work() -> None:
    compile_(rendered("__device__ int f() { return 1; }"))
    assert workers() == []


def test_an_interrupt_ends_the_workers() -> None:
    def interrupt(_: Rendered) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_(*(rendered(f"__device__ int f() {{ return {n}; }}", n) for n in range(4)), done=interrupt)
    assert workers() == []


def test_there_is_at_least_one_job_and_no_more_than_cores() -> None:
    assert 1 <= default_jobs() <= (os.cpu_count() or 1)
