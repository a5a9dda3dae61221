"""A compile adds LTO-IR for the architectures for which the code of its source differs."""

import pytest

from jitlto.base.errors import LinkError
from jitlto.base.versions import Architecture
from jitlto.compile.architectures import add_variants, link_alone
from jitlto.compile.compiler import CompileJob
from jitlto.compile.nvrtc import Compiler
from jitlto.cuda import nvfatbin
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import Source
from tests.support.compiled import compile_source, forms

CANDIDATES = tuple(map(Architecture, (75, 80, 89, 90)))


def architectures(text: str, *cubins: int) -> list[int]:
    compiler, source = Compiler(), Source(text.encode(), {})
    wanted = (*forms(CANDIDATES[:1], (ImageKind.LTOIR,)), *((ImageKind.SASS, Architecture(each)) for each in cubins))
    job = CompileJob("nvrtc", compiler.identity, source, CANDIDATES[:1], ("--std=c++17",), wanted, 1, CANDIDATES)
    images = add_variants(compiler, job, compiler.compile(job)).images
    return [architecture.number for kind, architecture, _ in images if kind is ImageKind.LTOIR]


@pytest.mark.slow
def test_code_that_differs_from_an_architecture_on_has_an_image_for_it() -> None:
    assert architectures("__device__ int f(int x) { return x / (__CUDA_ARCH__ >= 890 ? 3 : 5); }") == [75, 89]


def test_a_test_that_changes_nothing_needs_no_image() -> None:
    assert architectures("__device__ int f(int x) { return __CUDA_ARCH__ >= 890 ? x + x : 2 * x; }") == [75]


def test_a_source_that_does_not_compile_for_later_ones_is_compared_for_the_others() -> None:
    refused = "#if __CUDA_ARCH__ >= 890\n#error no\n#endif\n"
    assert architectures(refused + "__device__ int f(int x) { return x / (__CUDA_ARCH__ >= 800 ? 3 : 5); }") == [75, 80]


@pytest.mark.parametrize(
    "text",
    [
        "__constant__ int f = __CUDA_ARCH__ / 890;",
        "__device__ int f = __CUDA_ARCH__ / 890;",
        'extern "C" __global__ void __launch_bounds__(__CUDA_ARCH__ >= 890 ? 1024 : 512) f(int* x) { *x = 1; }',
        """extern "C" __global__ void f(int* x) {
          __shared__ int a[__CUDA_ARCH__ >= 890 ? 512 : 256];
          a[threadIdx.x] = *x; __syncthreads(); *x = a[blockDim.x - 1];
        }""",
    ],
)
def test_values_launch_bounds_and_memory_are_compared_too(text: str) -> None:
    assert architectures(text) == [75, 89]


def test_a_kernel_with_variables_in_shared_memory_is_compared_for_its_cubins() -> None:
    text = """template <typename T> __global__ void k(T* x) {
      __shared__ T all[32]; all[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = all[0] / (%s);
    }
    template __global__ void k(int*);"""
    assert architectures(text % "__CUDA_ARCH__ >= 890 ? 5 : 5", 90) == [75]
    assert architectures(text % "__CUDA_ARCH__ >= 890 ? 3 : 5", 90) == [75, 89]


@pytest.mark.parametrize("how", ["inline", "template <typename T> __noinline__", "template <typename T>"])
def test_a_kernel_is_compared_with_the_helpers_that_it_calls(how: str) -> None:
    argument = "<int>" if "template" in how else ""
    text = f"{how} __device__ int f(int x) {{ return x / (%s); }}"
    text += f' extern "C" __global__ void k(int* x) {{ *x = f{argument}(*x); }}'
    for cubins in ((), (90,)):
        assert architectures(text % "__CUDA_ARCH__ >= 890 ? 5 : 5", *cubins) == [75]
        assert architectures(text % "__CUDA_ARCH__ >= 890 ? 3 : 5", *cubins) == [75, 89]


def test_each_architecture_of_cubins_is_compared() -> None:
    text = "__device__ int f(int x) { return x / (__CUDA_ARCH__ == 890 ? 3 : 5); }"
    assert architectures(text, 80) == [75]
    assert architectures(text, 80, 89) == [75, 89, 90]


def test_what_cannot_be_compared_may_mean_something_else_in_a_cubin(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> list[bytes]:
        raise LinkError("no")

    monkeypatch.setattr("jitlto.compile.architectures.link_alone", fail)
    text = "__device__ int f(int x) { return x / (__CUDA_ARCH__ / 100); }"
    assert architectures(text) == [75]
    assert architectures(text, 80, 90) == [75, 80, 90]


def test_names_that_contain_the_architecture_have_the_image_of_the_lowest() -> None:
    assert architectures("namespace cub_SM_750 { __device__ int f(int x) { return x / (__CUDA_ARCH__ / 100); } }") == [
        75
    ]


# --- one fragment, linked without the others of its kernel ---

BASE, TARGET = Architecture(75), Architecture(90)
USES = b"""
struct Pair { float a; int b; };
struct Byte { char c; };
struct alignas(16) Wide { int a[8]; };
extern __device__ Pair other(Pair, Byte, Wide, const float*, double, bool, short);
extern __device__ float table[7];
extern __constant__ int sizes[];
__device__ Wide own(Wide w, Byte b, float4 v) {
  w.a[0] += sizes[b.c] + other({v.x, 1}, b, w, table, v.y, true, 2).b;
  return w;
}
__device__ float state[3] = {1, 2, 3};
"""


def alone(text: bytes, architecture: Architecture = BASE, symbols: bytes | None = None) -> list[bytes]:
    compiled = compile_source(Source(text, {}), [architecture], ("--std=c++17",))
    declared = compiled.module if symbols is None else compile_source(Source(symbols, {}), [BASE], ()).module
    return link_alone(nvfatbin.wrap(ImageKind.LTOIR, compiled.ltoir[architecture], architecture), declared, TARGET)


def test_a_fragment_links_without_what_it_requires() -> None:
    assert alone(USES) != alone(USES.replace(b"+=", b"-="))


@pytest.mark.slow
def test_equal_sources_make_equal_code_for_a_target_whatever_they_were_compiled_for() -> None:
    assert alone(USES) == alone(USES, Architecture(80)) == alone(USES, TARGET)


def test_a_fragment_that_lacks_a_symbol_is_an_error() -> None:
    with pytest.raises(LinkError):
        alone(b"__device__ int f(int x) { return x; }", symbols=b"__device__ int g(int x) { return x; }")
