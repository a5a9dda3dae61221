"""The family ``segment_reduce`` on a CPU: its rendered sources, unchanged, compiled by the host's C++ compiler.

A shim stands for the few words of CUDA that they use, and a fiber for each thread of a block: one that waits at a
barrier lets the next one run, and a barrier that only some threads reach ends the process.
"""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import numpy as np

from docs.examples.segment_reduce import Launch
from jitlto.cuda import toolkit
from jitlto.families import declaration
from jitlto.families.templates import render_family
from tests.support.segment_reduce_reference import DTYPES, Array

COMPILER: Final = shutil.which("g++")

_SHIM: Final = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <functional>
#include <vector>
#define __launch_bounds__(...)
#undef __shared__
#define __shared__ static
static dim3 blockIdx, gridDim, threadIdx;
template <typename T> T __ldg(const T* address) { return *address; }
inline float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
inline float __int_as_float(int bits) { return __uint_as_float(bits); }
inline unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
inline float __fdividef(float a, float b) { return a / b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned long long min(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
inline void atomicMin(unsigned* address, unsigned value) { *address = min(*address, value); }
static ucontext_t scheduler, fibers[256];
static bool has_finished[256];
static int votes;
static std::function<void()> kernel;
inline void __syncthreads() { swapcontext(&fibers[threadIdx.x], &scheduler); }
inline int __syncthreads_or(int vote) {
  votes |= vote;
  __syncthreads();
  const int result = votes;
  __syncthreads();
  votes = 0;
  __syncthreads();
  return result;
}
static void run_thread() {
  const unsigned thread = threadIdx.x;
  kernel();
  has_finished[thread] = true;
}
static void run_block() {
  static std::vector<char> stacks(256 << 16);
  for (int i = 0; i < 256; ++i) {
    getcontext(&fibers[i]);
    fibers[i].uc_stack.ss_sp = &stacks[i << 16];
    fibers[i].uc_stack.ss_size = 1 << 16;
    fibers[i].uc_link = &scheduler;
    has_finished[i] = false;
    makecontext(&fibers[i], run_thread, 0);
  }
  for (int finished = 0; finished == 0;) {
    for (threadIdx.x = 0; threadIdx.x < 256; ++threadIdx.x) {
      swapcontext(&scheduler, &fibers[threadIdx.x]);
      finished += has_finished[threadIdx.x];
    }
    if (finished % 256) { abort(); }
  }
}
"""
_LAUNCH: Final = r"""
extern "C" void launch_NUMBER(unsigned grid, const DATA_TYPE* values, const INDEX_TYPE* offsets, DATA_TYPE* output,
                              INDEX_TYPE rows, unsigned width) {
  kernel = [=] {
    segment_reduce::segment_reduce_kernel<DATA_TYPE, INDEX_TYPE, VECLEN, segment_reduce::REDUCE>(
        values, offsets, output, rows, width, nullptr, nullptr);
  };
  gridDim.x = grid;
  for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) { run_block(); }
}
"""
# What libcu++ has for device code, for the host.
_CSTDINT: Final = "#pragma once\n#include <stdint.h>\nnamespace cuda::std { using ::int32_t; using ::int64_t; }\n"


class Host:
    """Compiles kernels into one library in a directory, and runs them."""

    def __init__(self, directory: Path, configurations: list[dict[str, str]]) -> None:
        self.configurations = configurations
        family = declaration.load_family(declaration.find_family("segment_reduce"))
        (directory / "cuda" / "std").mkdir(parents=True)
        (directory / "cuda" / "std" / "cstdint").write_text(_CSTDINT)
        texts = [_SHIM]
        for rendered in render_family(family):
            identity = {"load": "identity", "store": "identity"}
            if any(set(rendered.key.parameters) <= (each | identity).items() for each in configurations):
                texts.append(rendered.text)
        for number, each in enumerate(configurations):
            text = _LAUNCH.replace("NUMBER", str(number))
            for name, value in each.items():
                text = text.replace(name.upper(), value)
            texts.append(text)
        source, library = directory / "kernels.cpp", directory / "kernels.so"
        source.write_text("".join(texts))
        includes = [f"-I{path}" for path in (directory, *family.include, *toolkit.header_roots())]
        command = [COMPILER or "g++", "-std=c++17", "-O1", "-Wno-attributes", "-shared", "-fPIC", *includes]
        subprocess.run([*command, str(source), "-o", str(library)], check=True, timeout=120)
        self.library = ctypes.CDLL(str(library))

    def reduce(
        self, configuration: dict[str, str], values: Array, offsets: Array, output: Array, blocks: int | None = None
    ) -> None:
        """Run a kernel: ``values`` are n × width, ``output`` is rows × width."""
        rows, width = output.shape
        how = Launch.of(rows, width, DTYPES[configuration["data_type"]])
        assert how.veclen == int(configuration["veclen"])
        number = self.configurations.index(configuration)
        kind: Any = ctypes.c_int64 if configuration["index_type"] == "int64_t" else ctypes.c_int32
        pointers = [ctypes.c_void_p(each.ctypes.data) for each in (values, offsets, output)]
        self.library[f"launch_{number}"](blocks or how.grid, *pointers, kind(rows), width)


def misaligned(shape: tuple[int, ...], dtype: str | np.dtype[Any], places: int) -> Array:
    """An array that begins so many elements behind an aligned address."""
    memory = np.zeros(int(np.prod(shape)) + 16, dtype)
    first = -memory.ctypes.data // memory.itemsize % (16 // memory.itemsize) + places
    return memory[first : first + int(np.prod(shape))].reshape(shape)
