"""Reading cubins: what they refer to and do not define, on machine code that NVRTC makes for separate linking."""

import pytest

from jitlto.base.versions import Architecture
from jitlto.cuda.nvjitlink import InputKind, LinkInput, find_undefined, link
from jitlto.record.headers import Source
from tests.support.compiled import compile_source, relocatable_cubin

FEATURES = {
    "printf": 'extern "C" __device__ int printf(const char*, ...);\n__global__ void k(float* x) { printf("%f", *x); }',
    "malloc": "__global__ void kern(float** x) { *x = (float*)malloc(16); free(x[1]); }",
    "assert": (
        'extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, size_t);\n'
        '__global__ void kern(float* x) { if (*x > 0) __assertfail("a", "b", 1, "c", 1); }'
    ),
    "function pointers": (
        "__device__ __noinline__ float f(float a) { return a; }\n__device__ float (*table[2])(float) = {f, f};\n"
        "__global__ void kern(float* x, int n) { *x = table[n](*x); }"
    ),
    "shared memory": "__global__ void kern(float* x) { extern __shared__ float s[]; s[threadIdx.x] = *x; *x = s[0]; }",
    "division and roots": "__global__ void kern(double* x, long long n) { *x = sqrt(*x) / n + n / 7 % n + sin(*x); }",
    "textures": "__global__ void kern(float* x, cudaTextureObject_t t) { *x = tex2D<float>(t, 1, 2); }",
}


@pytest.mark.slow
@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("mode", ["lto", "ptx", "cubin"])
def test_whatever_a_kernel_uses_of_the_toolkit_is_not_left_open(feature: str, mode: str) -> None:
    text, base = FEATURES[feature], Architecture(75)
    targets = [Architecture(90)] if mode == "cubin" else [Architecture(80), Architecture(90), Architecture(100)]
    if mode == "cubin":
        item = LinkInput(InputKind.CUBIN, relocatable_cubin(text), feature)
    else:
        compiled = compile_source(Source(text.encode(), {}), [base], ["--std=c++17"])
        lto = LinkInput(InputKind.LTOIR, compiled.ltoir[base], feature)
        item = lto if mode == "lto" else LinkInput(InputKind.PTX, compiled.ptx.encode(), feature)
    for target in targets:
        # The link itself refuses what is left open.
        assert find_undefined(link([item], target, ["-lto"] if mode == "lto" else []).data) == []
