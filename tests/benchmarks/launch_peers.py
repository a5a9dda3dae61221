"""The peers of ``tests.benchmarks.launch`` in C++: the driver called alone, and an operator of PyTorch."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

# CUlaunchConfig of cuda.h, so that no header of the toolkit is needed.
_CPP = """
#include <dlfcn.h>
struct Config { unsigned grid[3], block[3], shared; void* stream; void* attributes; unsigned count; };
using LaunchEx = int (*)(const Config*, void*, void**, void**);
extern "C" int launches(void* function, void* stream, void* x, void* y, unsigned n, int times, bool is_buffer) {
  static void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  static LaunchEx launch = driver ? (LaunchEx)dlsym(driver, "cuLaunchKernelEx") : nullptr;
  int status = launch ? 0 : -1;
  for (int k = 0; k < times && !status; ++k) {
    void* values[] = {&x, &y, &n};
    struct { void *x, *y; unsigned n; } packed = {x, y, n};
    size_t size = 20;
    void* extra[] = {(void*)1, &packed, (void*)2, &size, nullptr};  // CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE
    Config config = {{4, 1, 1}, {256, 1, 1}, 0, stream, nullptr, 0};
    status = launch(&config, function, is_buffer ? nullptr : values, is_buffer ? extra : nullptr);
  }
  return status;
}
"""
# What a package would write for PyTorch: an operator that checks its tensors, and launches in the given stream.
_OPERATOR = """
#include <ATen/core/Tensor.h>
#include <dlfcn.h>
#include <functional>
#include <torch/library.h>
struct Config { unsigned grid[3], block[3], shared; void* stream; void* attributes; unsigned count; };
using Launch = int (*)(const Config*, void*, void**, void**);
static void* kernel;
extern "C" void set_kernel(void* given) { kernel = given; }
static void add_three(const at::Tensor& x, const at::Tensor& y, int64_t n, int64_t stream) {
  static Launch launch = (Launch)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernelEx");
  for (const at::Tensor& each : {std::cref(x), std::cref(y)})
    TORCH_CHECK(each.is_cuda() && each.scalar_type() == at::kFloat && each.is_contiguous(), "not what it takes");
  const void* source = x.const_data_ptr();
  void* target = y.mutable_data_ptr();
  unsigned count = (unsigned)n;
  void* values[] = {&source, &target, &count};
  Config config = {{4, 1, 1}, {256, 1, 1}, 0, (void*)stream, nullptr, 0};
  TORCH_CHECK(launch(&config, kernel, values, nullptr) == 0, "the launch failed");
}
TORCH_LIBRARY(jitlto_peer, m) { m.def("add_three(Tensor x, Tensor(a!) y, int n, int stream) -> ()"); }
TORCH_LIBRARY_IMPL(jitlto_peer, CUDA, m) { m.impl("add_three", &add_three); }
"""
_SECONDS_OF_OPERATOR = 40  # that its compilation may take


def build_launches(place: Path) -> Path:
    """Compile bursts of launches in a directory; return the library."""
    return _compile(place, "launches", _CPP, ["-std=c++17"], None)


def build_operator(place: Path) -> Path:
    """Compile the operator of PyTorch, in a time that a benchmark can spare; return the library."""
    import torch
    from torch.utils import cpp_extension

    flags = ["-std=c++20", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    flags += [f"-I{path}" for path in cpp_extension.include_paths()]
    flags += [f"-L{path}" for path in cpp_extension.library_paths()]
    return _compile(place, "operator", _OPERATOR, [*flags, "-ltorch_cpu", "-lc10"], _SECONDS_OF_OPERATOR)


def _compile(place: Path, name: str, text: str, flags: list[str], seconds: float | None) -> Path:
    compiler = next((found for each in ("c++", "g++", "clang++") if (found := shutil.which(each))), None)
    if compiler is None:
        raise FileNotFoundError("not built: no C++ compiler on PATH")
    source, library = place / f"{name}.cpp", place / f"lib{name}.so"
    source.write_text(text)
    command = [compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(library), *flags, "-ldl"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds)
    except subprocess.CalledProcessError as error:
        errors = [line for line in error.stderr.splitlines() if "error" in line]
        raise RuntimeError(f"not built: {(errors or ['the compiler failed'])[0]}") from None
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not built: it takes longer than {seconds} s") from None
    return library
