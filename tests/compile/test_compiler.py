"""What is asked of every compiler: the images of a source have the same functions, for whatever architecture."""

from dataclasses import replace

import pytest

from jitlto.base.errors import CompileError
from jitlto.base.versions import Architecture
from jitlto.compile.compiler import CompiledSource, CompileJob, find_toolchain
from jitlto.cuda.elf import read_sections
from jitlto.cuda.toolkit import find_binary
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import Source
from tests.support.errors import raises

OLD, NEW = Architecture(75), Architecture(90)
KINDS = [(ImageKind.LTOIR,), (ImageKind.LTOIR, ImageKind.PTX)]
TOOLCHAINS = [
    "nvrtc",
    pytest.param("nvcc", marks=pytest.mark.skipif(find_binary("nvcc") is None, reason="needs nvcc")),
]
PARAMETERS = """
#if __CUDA_ARCH__ >= 900
#define PARAMETERS int* x, int n
#else
#define PARAMETERS int* x
#endif
extern "C" __global__ void kern(PARAMETERS) { *x = 1; }
"""
BODY = """
__device__ int wide(int);
extern "C" __global__ void kern(int* x) {
#if __CUDA_ARCH__ >= 900
  *x = wide(*x);
#endif
}
"""


def compile_text(toolchain: str, text: str, kinds: tuple[ImageKind, ...]) -> CompiledSource:
    """A source, compiled to these images for one architecture, and to a cubin for a later one."""
    compiler = find_toolchain(toolchain)
    images = *((kind, OLD) for kind in kinds), (ImageKind.SASS, NEW)
    return compiler.compile(CompileJob(toolchain, compiler.identity, Source(text.encode(), {}), (OLD,), (), images))


@pytest.mark.parametrize("toolchain", TOOLCHAINS)
@pytest.mark.parametrize("kinds", KINDS)
def test_a_kernel_whose_cubin_takes_other_parameters_is_refused(toolchain: str, kinds: tuple[ImageKind, ...]) -> None:
    with raises(CompileError, "compile-architectures", "kern", "compute_75", "compute_90"):
        compile_text(toolchain, PARAMETERS, kinds)


@pytest.mark.parametrize("toolchain", TOOLCHAINS)
@pytest.mark.parametrize("kinds", KINDS)
def test_what_a_cubin_alone_requires_is_required(toolchain: str, kinds: tuple[ImageKind, ...]) -> None:
    compiled = compile_text(toolchain, BODY, kinds)
    assert [symbol.name for symbol in compiled.requires] == ["_Z4widei"]
    assert [(kind, each) for kind, each, _ in compiled.images] == [
        *((kind, OLD) for kind in kinds),
        (ImageKind.SASS, NEW),
    ]


NAMED = """
#if __CUDA_ARCH__ >= 900
#define HELPER late
#else
#define HELPER early
#endif
inline __device__ __noinline__ int HELPER(int x) { return x * 3; }
__device__ int own(int x) { return HELPER(x); }
"""


@pytest.mark.parametrize("kinds", KINDS)
def test_inline_functions_of_some_architectures_belong_to_the_source(kinds: tuple[ImageKind, ...]) -> None:
    compiled = compile_text("nvrtc", NAMED, kinds)  # as names in CUB and cooperative groups do
    assert [symbol.name for symbol in compiled.provides] == ["_Z3owni"]
    assert compiled.requires == ()


LOADS = 'extern "C" __device__ int load(const int* x) { return x[0] + x[1]; }'


@pytest.mark.parametrize("toolchain", TOOLCHAINS)
def test_ptxas_makes_cubins_as_it_is_told(toolchain: str) -> None:
    compiler = find_toolchain(toolchain)
    images = ((ImageKind.SASS, NEW),)
    job = CompileJob(toolchain, compiler.identity, Source(LOADS.encode(), {}), (OLD,), (), images)
    made = [compiler.make(replace(job, cubin_options=each), images).images[images[0]] for each in ((), ("-dlcm=cv",))]
    codes = [[each.data for each in read_sections(cubin) if each.name.startswith(".text")] for cubin in made]
    assert codes[0] != codes[1]
