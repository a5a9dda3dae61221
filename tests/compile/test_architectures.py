"""A compile adds LTO-IR for the architectures for which the code of its source differs."""

from __future__ import annotations

import pytest

from jitlto.base.versions import Architecture
from jitlto.compile import machine_code
from jitlto.compile.architecture_tests import find_tests
from jitlto.compile.architectures import add_variants, rename
from jitlto.compile.compiler import CompileJob
from jitlto.compile.nvrtc import Compiler
from jitlto.record.fragment import ImageKind, Symbol, SymbolKind
from jitlto.record.headers import Source

CANDIDATES = tuple(map(Architecture, (75, 80, 89, 90)))


def architectures(text: str) -> list[int]:
    compiler, source = Compiler(), Source(text.encode(), {})
    tests = find_tests(source, (), CANDIDATES)
    job = CompileJob(
        "nvrtc", compiler.identity, source, CANDIDATES[:1], ("--std=c++17",), (ImageKind.LTOIR,), tests=tests
    )
    images = add_variants(compiler, job, compiler.compile(job)).images
    return [architecture.number for _, architecture, _ in images]


@pytest.mark.slow
def test_code_that_differs_from_an_architecture_on_has_an_image_for_it() -> None:
    assert architectures("__device__ int f(int x) { return x / (__CUDA_ARCH__ >= 890 ? 3 : 5); }") == [75, 89]


def test_a_test_that_changes_nothing_needs_no_image() -> None:
    assert architectures("__device__ int f(int x) { return __CUDA_ARCH__ >= 890 ? x + x : 2 * x; }") == [75]


def test_equal_ltoir_is_not_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "compile_alone", None)
    assert architectures("#if __CUDA_ARCH__ >= 800\n#endif\n__device__ int f(int x) { return x + x; }") == [75]


@pytest.mark.parametrize(
    ("name", "later"),
    [
        ("_Z1fPN3cub16_V_300500_SM_75011BlockReduceE", "_Z1fPN3cub17_V_300500_SM_120011BlockReduceE"),
        ("_Z1fN3cub20CUB_200802_SM_750_NS1xE", "_Z1fN3cub21CUB_200802_SM_1200_NS1xE"),
        ("_Z1fN4cuda7_SM_7501xE", "_Z1fN4cuda8_SM_12001xE"),
        ("_Z1fN9my_SM_7501xE", "_Z1fN9my_SM_7501xE"),
        ("_Z1fi", "_Z1fi"),
    ],
)
def test_names_of_libraries_contain_the_architecture(name: str, later: str) -> None:
    (symbol,) = rename([Symbol(name, SymbolKind.FUNCTION, "()()")], Architecture(75), Architecture(120))
    assert symbol.name == later
