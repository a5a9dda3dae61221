"""The headers that a compile reads are found out once for all workers, and only where somebody asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from jitlto.base.versions import Architecture, Version
from jitlto.compile import header_trace, nvrtc
from jitlto.compile.compiler import CompileJob
from jitlto.compile.header_trace import HeaderTraces
from jitlto.compile.nvrtc_program import Step
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import Source

HEAD = b'#include "main.cuh"\n'
JOB = CompileJob(
    "nvrtc", "", Source(HEAD + b"__device__ int x;\n", {"main.cuh": b"", "dead.cuh": b""}), (Architecture(75),), (),
    (ImageKind.LTOIR,), sharers=100,
)  # fmt: skip
STEPS = [Step.from_options("ltoir", Architecture(75), ())]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, Sequence[Step]]]:
    """The texts and steps of all traces, each of which finds one header."""
    calls: list[tuple[bytes, Sequence[Step]]] = []

    def trace(_: CompileJob, text: bytes, steps: Sequence[Step]) -> frozenset[str]:
        calls.append((text, list(steps)))
        return frozenset(("main.cuh",))

    monkeypatch.setattr(header_trace, "_trace_headers", trace)
    return calls


def test_workers_with_one_directory_trace_once(traced: list[object], tmp_path: Path) -> None:
    first, second = (HeaderTraces(tmp_path).find(JOB, HEAD, STEPS) for _ in range(2))
    assert first == second == {"main.cuh"}
    assert len(traced) == 1


def test_without_a_directory_each_process_traces_once(traced: list[object]) -> None:
    traces = HeaderTraces(None)
    assert traces.find(JOB, HEAD, STEPS) == traces.find(JOB, HEAD, STEPS) == {"main.cuh"}
    assert len(traced) == 1


@pytest.mark.parametrize(
    ("job", "text", "steps"),
    [
        (replace(JOB, source=Source(JOB.source.text, {"main.cuh": b"// changed", "dead.cuh": b""})), HEAD, STEPS),
        (JOB, b'#include "dead.cuh"\n', STEPS),
        (JOB, HEAD, [Step.from_options("ptx", Architecture(75), ())]),
        (JOB, HEAD, [Step.from_options("ltoir", Architecture(75), ("-DX",))]),
        (JOB, HEAD, [Step.from_options("ltoir", Architecture(80), ())]),
    ],
)
def test_other_headers_includes_options_or_architectures_are_another_question(
    job: CompileJob, text: bytes, steps: list[Step], traced: list[object], tmp_path: Path
) -> None:
    traces = HeaderTraces(tmp_path)
    traces.find(JOB, HEAD, STEPS)
    traces.find(job, text, steps)
    assert len(traced) == 2


def test_a_directory_that_is_gone_makes_it_unclear_what_is_read(tmp_path: Path) -> None:
    assert HeaderTraces(tmp_path / "gone").find(JOB, HEAD, STEPS) is None
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize(("asked", "reads"), [(True, ("main.cuh",)), (False, ("dead.cuh", "main.cuh"))])
def test_what_is_read_is_traced_for_the_steps_that_ran_if_somebody_asks(
    asked: bool, reads: tuple[str, ...], traced: list[tuple[bytes, Sequence[Step]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = nvrtc.Compiler()
    monkeypatch.setattr(compiler, "version", Version(13, 0))
    compiled = compiler.compile(replace(JOB, images=tuple(ImageKind), lists_reads=asked))
    assert compiled.reads == reads
    kinds = [step.kind for _, steps in traced for step in steps]
    assert kinds == (["ltoir", "ptx"] if asked else [])
