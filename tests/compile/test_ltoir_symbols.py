"""Symbols of LTO-IR as nvJitLink tells them, beside those that the compiler's PTX shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

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
from tests.support.compiled import BASE, compiled

pytestmark = pytest.mark.skipif(
    not ltoir_symbols.can_read(toolkit.nvrtc_version()), reason="nvJitLink is not of NVRTC's release"
)
#: Older ones cannot tell what a source without kernels provides.
relocatable = pytest.mark.skipif(nvjitlink.version() < (13, 0), reason="nvJitLink is older than 13.0")

DEVICE = r"""
struct pair { float x, y; };
struct alignas(16) wide { double a, b; };
namespace { __device__ __noinline__ float hidden(float x) { return x / 3; } }
static __device__ __noinline__ float also_hidden(float x) { return x * 4; }
extern "C" { static __device__ __noinline__ float hidden_too(float x) { return x * 5; } }
extern __device__ pair required(double x, pair p, wide w, char c);
extern __device__ int far[4];
extern __constant__ float open[];
extern "C" __device__ void plain();
__device__ int plain_variable;
__device__ inline wide weak_variable = {1, 2};
static __device__ int own_variable = 3;
template <class T> __device__ __noinline__ T helper(T x) { return x + 1; }
template __device__ int helper<int>(int);
__device__ wide provided(float x, pair p, const pair& q, bool b, long long n) {
  extern __shared__ float scratch[];
  static __device__ int count = 0;
  plain();
  printf("%f %d", hidden(x) + also_hidden(x) + hidden_too(x) + scratch[0], count++);
  pair r = required(x, p, weak_variable, 'c');
  return wide{r.x + helper(x) + far[1] + open[n], r.y + own_variable};
}
"""
KERNEL = """
struct three { float x, y, z; };
__device__ float op(float x, three t);
template <class T> __device__ __noinline__ T helper(T x) { return x + 1; }
namespace { __device__ __noinline__ float hidden(float x) { return x / 3; } }
__constant__ float weights[4];
template <class T> __global__ void kern(T* out, three t, char c, const __grid_constant__ three u) {
  out[0] = op(helper(hidden(c)), t) + u.z + weights[1];
}
template __global__ void kern<float>(float*, three, char, const __grid_constant__ three);
"""


def read(text: str, arch: int = BASE.number) -> Module:
    made = compiled(text, arch)
    found = ltoir_symbols.read_modules(made.ltoir, made.version)
    assert found is not None
    (module,) = found
    return module


def lasting(symbols: tuple[Symbol, ...]) -> set[Symbol]:
    """Symbols without static variables of functions, which other sources cannot name."""
    return {symbol for symbol in symbols if not symbol.name.startswith("_ZZ")}


@pytest.mark.slow
@relocatable
@pytest.mark.parametrize("arch", [75, 90])
def test_what_a_source_without_kernels_provides_and_requires(arch: int) -> None:
    module, expected = read(DEVICE, arch), compiled(DEVICE, arch).module
    assert lasting(module.provides) == lasting(expected.provides)
    # What alignment another source's variable is declared with is not known.
    assert {replace(s, layout=s.layout.replace("@4", "@1")) for s in expected.requires} == set(module.requires)
    assert (module.isa, module.target) == (expected.isa, expected.target)


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


_TYPES = ("char", "bool", "short", "int", "long", "float", "double", "void*", "float2", "float4", "char3", "s12", "s3")
_STRUCTS = "struct s12 { float x, y, z; }; struct s3 { char x, y, z; };\n"


@relocatable
@pytest.mark.slow
@settings(max_examples=20)
@given(st.sampled_from(("void", *_TYPES)), st.lists(st.sampled_from(_TYPES), max_size=5))
def test_the_layout_of_any_function_is_that_of_ptx(result: str, parameters: list[str]) -> None:
    types = ", ".join(f"{each} p{number}" for number, each in enumerate(parameters))
    given = ", ".join(f"p{number}" for number in range(len(parameters)))
    text = (
        f"{_STRUCTS}__device__ {result} far({types});\n__device__ {result} near({types}) {{ return far({given}); }}\n"
    )
    module, expected = read(text), compiled(text).module
    assert (module.provides, module.requires) == (expected.provides, expected.requires)


def test_another_release_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Version:
        raise ToolchainError("none", code="toolchain-missing")

    made = compiled(KERNEL)
    others: list[Callable[[], Version]] = [lambda: Version(made.version.major, made.version.minor + 1), missing]
    for version in others:
        monkeypatch.setattr(nvjitlink, "version", version)
        assert ltoir_symbols.read_modules(made.ltoir, made.version) is None


def job(compiler: Compiler, text: str, images: tuple[ImageKind, ...]) -> CompileJob:
    architectures = (Architecture(75), Architecture(90))
    source = Source(text.encode(), {})
    return CompileJob("nvrtc", compiler.identity, source, architectures, ("--std=c++17",), images)


@pytest.mark.slow
@relocatable
@pytest.mark.parametrize("text", [DEVICE, KERNEL])
def test_without_ptx_the_front_end_runs_once_for_each_architecture(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler()
    whole = compiler.compile(job(compiler, text, (ImageKind.LTOIR, ImageKind.PTX)))
    steps: list[str] = []

    def run(source: Source, step: nvrtc.Step, *_: object) -> nvrtc.Output:
        steps.append(f"{step.kind} {step.architecture}")
        return nvrtc.run_step(source, step)

    monkeypatch.setattr(compiler._snapshots, "run", run)
    alone = compiler.compile(job(compiler, text, (ImageKind.LTOIR,)))
    assert steps == ["ltoir 75", "ltoir 90"]
    assert alone.images == tuple(image for image in whole.images if image[0] is ImageKind.LTOIR)
    assert {each.name for each in alone.provides} >= {each.name for each in whole.provides}


def test_a_function_that_differs_by_architecture_is_refused() -> None:
    text = "#if __CUDA_ARCH__ < 900\n__device__ int weights;\n#endif\n__global__ void kern() {}"
    compiler = Compiler()
    with pytest.raises(CompileError, match="compile-architectures"):
        compiler.compile(job(compiler, text, (ImageKind.LTOIR,)))
