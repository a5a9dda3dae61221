"""Snapshots: includes are read once, the bytes are those of a plain compile, and headers are never stale."""

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from jitlto.base.errors import CompileError
from jitlto.base.files import temporary_directory
from jitlto.base.versions import Architecture
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile import snapshot
from jitlto.compile.compiler import CompiledSource, CompileJob
from jitlto.compile.headers import HeaderSearch
from jitlto.compile.nvrtc import Compiler
from jitlto.compile.nvrtc_program import Step
from jitlto.compile.snapshot import LEAST_SHARERS, Snapshots
from jitlto.cuda import toolkit
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import Source
from tests.support.compiled import forms
from tests.support.process import ROOT, started

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
    for number in range(4)
]


def job(
    compiler: Compiler,
    text: str,
    sharers: int,
    headers: dict[str, bytes] = HEADERS,
    options: tuple[str, ...] = ("--std=c++17", "--generate-line-info"),
) -> CompileJob:
    source = HeaderSearch(toolkit.header_roots(), headers).closure(text.encode())
    architectures = (Architecture(75), Architecture(80))
    return CompileJob("nvrtc", compiler.identity, source, architectures, options, forms(architectures), sharers)


def same(one: CompiledSource, other: CompiledSource) -> bool:
    """Equal in all but what is known of the headers read."""
    return all(getattr(one, name) == getattr(other, name) for name in CompiledSource.__slots__ if name != "reads")


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")  # which NVRTC writes into LTO-IR


@pytest.fixture(autouse=True)
def of_any_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have snapshots made of the shortest includes too: how long a fork takes is not for a test to say."""
    monkeypatch.setattr(snapshot, "_FORKS", 0)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory whose path leaves room for the name of a socket, which has at most 107 characters."""
    with temporary_directory("jitlto-") as directory:
        yield Path(directory)


@pytest.fixture
def compiler(tmp_path: Path) -> Iterator[Compiler]:
    """A compiler that makes snapshots like those of worker processes."""
    compiler = Compiler()
    compiler._snapshots = Snapshots(tmp_path)
    yield compiler
    compiler._snapshots.close()


def plainly(text: str, headers: dict[str, bytes] = HEADERS) -> CompiledSource:
    compiler = Compiler()
    return compiler.compile(job(compiler, text, sharers=100, headers=headers))


def wait_for_end(processes: Iterable[int]) -> None:
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{number}").exists() for number in processes):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children(process: int) -> set[int]:
    """The processes that a process has started."""
    return {int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()}


def test_a_step_from_a_snapshot_equals_a_plain_step(tmp_path: Path) -> None:
    source = Source(b'#include "a.cuh"\n__global__ void k(int* x) { *x = A; }\n', {"a.cuh": b"#define A 3\n"})
    step, snapshots = Step(ImageKind.PTX, Architecture(75), ("--std=c++17",)), Snapshots(tmp_path)
    output = snapshots.run(source, step, LEAST_SHARERS)
    snapshots.close()
    assert (snapshots.made, snapshots.used) == (1, 1)
    assert output == nvrtc.run_step(source, step)


@pytest.mark.slow
def test_a_snapshot_never_changes_the_result(compiler: Compiler) -> None:
    results = [compiler.compile(job(compiler, text, sharers=100)) for text in SOURCES]
    assert compiler._snapshots.made == 4  # LTO-IR and PTX for two architectures
    assert compiler._snapshots.used == 4 * len(SOURCES)
    assert all(same(compiled, plainly(text)) for compiled, text in zip(results, SOURCES, strict=True))


@pytest.mark.slow
def test_a_constant_changed_in_a_header_of_a_snapshot_is_seen(compiler: Compiler) -> None:
    before = compiler.compile(job(compiler, SOURCES[0], sharers=100))
    headers = HEADERS | {"constants.cuh": HEADERS["constants.cuh"].replace(b"41", b"7777")}
    after = compiler.compile(job(compiler, SOURCES[0], sharers=100, headers=headers))
    assert same(after, plainly(SOURCES[0], headers))
    assert not same(after, before)


@pytest.mark.slow
def test_an_error_reads_as_without_a_snapshot(compiler: Compiler) -> None:
    wrong = SOURCES[0].replace("return hidden", "return no_such_name + hidden")
    compiler.compile(job(compiler, SOURCES[0], sharers=100))
    logs = []
    for each in (compiler, Compiler()):
        with pytest.raises(CompileError) as caught:
            each.compile(job(each, wrong, sharers=100))
        logs.append(caught.value.log)
    assert logs[0] == logs[1]
    assert ".cu(5): error" in logs[0]


@pytest.mark.slow
def test_processes_share_templates(compiler: Compiler, tmp_path: Path) -> None:
    first = compiler.compile(job(compiler, SOURCES[0], sharers=100))
    other = Compiler()
    other._snapshots = Snapshots(tmp_path)
    assert same(other.compile(job(other, SOURCES[0], sharers=100)), first)
    assert (other._snapshots.made, other._snapshots.used) == (0, 4)


@pytest.mark.slow
def test_when_the_templates_are_killed_others_are_made(compiler: Compiler) -> None:
    first = compiler.compile(job(compiler, SOURCES[0], sharers=100))
    for process in compiler._snapshots._templates:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    for _ in range(2):  # once more plainly, for who asks in vain does not wait again
        assert same(compiler.compile(job(compiler, SOURCES[0], sharers=100)), first)
    assert compiler._snapshots.made == 8


@pytest.mark.slow
def test_templates_end_with_the_process_that_made_them(tmp_path: Path) -> None:
    program = """if True:
        import sys, time
        from pathlib import Path
        from jitlto.compile.snapshot import Snapshots
        from tests.compile.test_snapshot import SOURCES, Compiler, children, job, os
        compiler = Compiler()
        compiler._snapshots = Snapshots(Path(sys.argv[1]))
        compiler.compile(job(compiler, SOURCES[0], sharers=100))
        print(*children(os.getpid()), flush=True)
        time.sleep(600)
    """
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    variables = {"PYTHONPATH": f"{ROOT}{os.pathsep}{path}"}
    with started("-c", program, tmp_path, variables=variables) as process:
        assert process.stdout is not None
        templates = [int(number) for number in process.stdout.readline().split()]
        assert len(templates) == 4
        process.kill()
    wait_for_end(templates)
