"""The peer of ``tests.benchmarks.launch`` in C++: the driver called alone."""

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


def build_launches(place: Path) -> Path:
    """Compile bursts of launches in a directory; return the library."""
    compiler = next((found for each in ("c++", "g++", "clang++") if (found := shutil.which(each))), None)
    if compiler is None:
        raise FileNotFoundError("not built: no C++ compiler on PATH")
    source, library = place / "launches.cpp", place / "liblaunches.so"
    source.write_text(_CPP)
    command = [compiler, "-O2", "-std=c++17", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library
