"""Symbols of LTO-IR as nvJitLink tells them, beside those that the compiler's PTX shows."""

from collections.abc import Callable

import pytest

from jitlto.base.errors import CompileError, ToolchainError
from jitlto.base.versions import Architecture, Version
from jitlto.compile import ltoir_symbols
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.compiler import CompileJob
from jitlto.compile.nvrtc import Compiler
from jitlto.cuda import nvjitlink, toolkit
from jitlto.cuda.ptx import Module
from jitlto.record.fragment import ImageKind, Symbol, SymbolKind
from jitlto.record.headers import Source
from tests.support.compiled import compiled, forms

pytestmark = pytest.mark.skipif(not Compiler().reads_ltoir(), reason="nvJitLink is not of NVRTC's release")

DEVICE = "__device__ float op(float x) { return x + 1; }"
KERNEL = """
struct three { float x, y, z; };
__device__ float op(float x, three t);
template <class T> __device__ __noinline__ T helper(T x) { return x + 1; }
namespace { __device__ __noinline__ float hidden(float x) { return x / 3; } }
__constant__ float weights[4];
template <class T> __global__ void kern(T* out, three t, char c, const __grid_constant__ three u) {
  out[0] = fmaf(op(helper(hidden(c)), t), u.z, weights[1]);  // which NVRTC declares and defines itself
}
template __global__ void kern<float>(float*, three, char, const __grid_constant__ three);
"""


def read(text: str) -> Module:
    found = ltoir_symbols.read_modules(compiled(text).ltoir)
    assert found is not None
    (module,) = found
    return module


def test_what_a_source_without_kernels_provides_is_not_told() -> None:
    assert ltoir_symbols.read_modules(compiled(DEVICE).ltoir) is None


@pytest.mark.slow
def test_a_kernel_its_parameters_and_what_it_requires() -> None:
    module, expected = read(KERNEL), compiled(KERNEL).module
    assert module.requires == expected.requires
    kernels = [s.name for s in expected.provides if s.kind is SymbolKind.KERNEL]
    assert [s.name for s in module.provides if s.kind is SymbolKind.KERNEL] == kernels
    assert module.declarations[kernels[0]].parameters == expected.declarations[kernels[0]].parameters
    assert {s for s in module.provides if s.kind is SymbolKind.VARIABLE} == {
        s for s in expected.provides if s.kind is SymbolKind.VARIABLE
    }


def test_of_a_kernels_helpers_those_that_others_could_define_are_listed() -> None:
    assert [s for s in read(KERNEL).provides if s.kind is SymbolKind.FUNCTION] == [
        Symbol("_Z6helperIfET_S0_", SymbolKind.FUNCTION, "(4)(4)", weak=True)
    ]


def test_another_release_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Version:
        raise ToolchainError("none", code="toolchain-missing")

    compiler, release = Compiler(), toolkit.nvrtc_version()
    others: list[Callable[[], Version]] = [lambda: Version(release.major, release.minor + 1), missing]
    for version in others:
        monkeypatch.setattr(nvjitlink, "version", version)
        assert not compiler.reads_ltoir()


def job(compiler: Compiler, text: str, *kinds: ImageKind) -> CompileJob:
    architectures = (Architecture(75), Architecture(90))
    source = Source(text.encode(), {})
    return CompileJob("nvrtc", compiler.identity, source, architectures, ("--std=c++17",), forms(architectures, kinds))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "expected"),
    [(KERNEL, []), (DEVICE, ["ptx 75", "ptx 90"]), (f"// __global__\n{DEVICE}", ["ptx 75", "ptx 90"])],
)
def test_without_ptx_the_front_end_runs_once_for_each_architecture_of_a_kernel(
    text: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = Compiler()
    whole = compiler.compile(job(compiler, text, *ImageKind))
    steps: list[str] = []

    def run(source: Source, step: nvrtc.Step, *_: object) -> nvrtc.Output:
        steps.append(f"{step.kind} {step.architecture}")
        return nvrtc.run_step(source, step)

    monkeypatch.setattr(compiler._snapshots, "run", run)
    alone = compiler.compile(job(compiler, text, ImageKind.LTOIR))
    assert steps == ["ltoir 75", "ltoir 90", *expected]
    assert alone.images == tuple(image for image in whole.images if image[0] is ImageKind.LTOIR)
    assert {each.name for each in alone.provides} >= {each.name for each in whole.provides}


def test_a_function_that_differs_by_architecture_is_refused() -> None:
    text = "#if __CUDA_ARCH__ < 900\n__device__ int weights;\n#endif\n__global__ void kern() {}"
    compiler = Compiler()
    with pytest.raises(CompileError, match="compile-architectures"):
        compiler.compile(job(compiler, text, ImageKind.LTOIR))
