"""The machine code of one fragment, linked without the others of its kernel."""

from __future__ import annotations

import pytest

from jitlto.base.errors import LinkError
from jitlto.base.versions import Architecture
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.machine_code import hash_alone, hash_code
from jitlto.cuda import nvfatbin, nvjitlink
from jitlto.cuda.nvjitlink import InputKind, LinkInput
from jitlto.record.headers import Source

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


def alone(text: bytes, architecture: Architecture = BASE, symbols: bytes | None = None) -> str:
    compiled = nvrtc.compile_source(Source(text, {}), [architecture], ("--std=c++17",))
    declared = compiled.module if symbols is None else nvrtc.compile_source(Source(symbols, {}), [BASE], ()).module
    fatbin = nvfatbin.wrap_ltoir(compiled.ltoir[architecture], architecture)
    return hash_alone(fatbin, declared.provides, declared.requires, declared.isa, TARGET)


def test_a_fragment_links_without_what_it_requires() -> None:
    assert alone(USES) != alone(USES.replace(b"+=", b"-="))


@pytest.mark.slow
def test_equal_sources_make_equal_code_for_a_target_whatever_they_were_compiled_for() -> None:
    assert alone(USES) == alone(USES, Architecture(80)) == alone(USES, TARGET)


@pytest.mark.slow
def test_a_kernel_is_code_too() -> None:
    text = b'__device__ int f(int); extern "C" __global__ void kern(int* x) { *x = f(*x); }'
    assert alone(text) != alone(text.replace(b"f(*x);", b"f(*x) + 1;"))


def test_a_fragment_that_lacks_a_symbol_is_an_error() -> None:
    with pytest.raises(LinkError):
        alone(b"__device__ int f(int x) { return x; }", symbols=b"__device__ int g(int x) { return x; }")


def test_kernels_that_an_option_does_not_change_have_the_same_hash() -> None:
    def link(text: bytes, *options: str) -> bytes:
        compiled = nvrtc.compile_source(Source(text, {}), [BASE], ("--std=c++17",))
        fatbin = nvfatbin.wrap_ltoir(compiled.ltoir[BASE], BASE)
        return nvjitlink.link([LinkInput(InputKind.FATBIN, fatbin, "kernel")], TARGET, ("-lto", *options)).data

    text = b'extern "C" __global__ void __launch_bounds__(64, 1) kern(int* x) { x[threadIdx.x] += 1; }'
    plain, limited = link(text), link(text, "-maxrregcount=128")  # CUDA 13 notes the option
    assert hash_code(plain) == hash_code(limited) != hash_code(link(text.replace(b"1;", b"2;")))
    assert hash_code(b".version 8.0") != hash_code(b".version 8.1")
