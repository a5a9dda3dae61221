"""A compile adds LTO-IR for the architectures for which the code of its source differs."""

from __future__ import annotations

import pytest

from jitlto.base.versions import Architecture
from jitlto.compile import machine_code
from jitlto.compile.architectures import add_variants
from jitlto.compile.compiler import CompileJob
from jitlto.compile.nvrtc import Compiler
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import Source

CANDIDATES = tuple(map(Architecture, (75, 80, 89, 90)))


def architectures(text: str, candidates: tuple[Architecture, ...] = CANDIDATES) -> list[int]:
    compiler, source = Compiler(), Source(text.encode(), {})
    job = CompileJob(
        "nvrtc", compiler.identity, source, candidates[:1], ("--std=c++17",), (ImageKind.LTOIR,), candidates=candidates
    )
    images = add_variants(compiler, job, compiler.compile(job)).images
    return [architecture.number for _, architecture, _ in images]


@pytest.mark.slow
def test_code_that_differs_from_an_architecture_on_has_an_image_for_it() -> None:
    assert architectures("__device__ int f(int x) { return x / (__CUDA_ARCH__ >= 890 ? 3 : 5); }") == [75, 89]


def test_a_test_that_changes_nothing_needs_no_image() -> None:
    assert architectures("__device__ int f(int x) { return __CUDA_ARCH__ >= 890 ? x + x : 2 * x; }") == [75]


def test_a_source_that_does_not_compile_for_later_ones_is_compared_for_the_others() -> None:
    refused = "#if __CUDA_ARCH__ >= 890\n#error no\n#endif\n"
    assert architectures(refused + "__device__ int f(int x) { return x / (__CUDA_ARCH__ >= 800 ? 3 : 5); }") == [75, 80]


def test_names_that_contain_the_architecture_have_the_image_of_the_lowest() -> None:
    assert architectures("namespace cub_SM_750 { __device__ int f(int x) { return x / (__CUDA_ARCH__ / 100); } }") == [
        75
    ]


def test_equal_ltoir_is_not_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "hash_alone", None)
    text = "#if __CUDA_ARCH__ >= 800\n#endif\n__device__ int f(int x) { return x + x; }"
    assert architectures(text, CANDIDATES[:3]) == [75]
