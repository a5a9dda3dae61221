"""The family ``transport`` on a CPU: its rendered sources, unchanged, compiled by the host's C++ compiler.

A shim stands for the few words of CUDA that they use, and a loop for the grid. So the physics is tested where there is
no GPU; and since the sources say themselves where they round, the tallies are those of a GPU, to the last bit.
"""

import ctypes
import math
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from docs.examples.transport import LEDGER, Material, Problem, Run, Tallies, scalars, tables
from jitlto.families import declaration
from jitlto.families.templates import RenderedSource, render_family

COMPILER: Final = shutil.which("g++")

_SHIM: Final = r"""
#include <math.h>
#include <stdint.h>
#include <string.h>
#define __device__
#define __global__
#define __forceinline__ inline
struct dimensions { unsigned x, y, z; };
static dimensions gridDim, blockDim, blockIdx, threadIdx;
template <typename T> T __ldg(const T* address) { return *address; }
inline float __int_as_float(int bits) { float x; memcpy(&x, &bits, 4); return x; }
inline int __float_as_int(float x) { int bits; memcpy(&bits, &x, 4); return bits; }
inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(nearbyintf(x)); }
inline unsigned long long __float2ull_rn(float x) {
  return x < 0x1p64f ? static_cast<unsigned long long>(nearbyintf(x)) : ~0ull;
}
inline void atomicAdd(unsigned long long* address, unsigned long long value) { *address += value; }
"""
# What libcu++ has for device code, for the host.
_CSTDINT: Final = "#pragma once\n#include <stdint.h>\nnamespace cuda { namespace std { using ::uint32_t; } }\n"
_MAIN: Final = r"""
#include "elementary.cuh"
extern "C" {
void launch(unsigned grid, unsigned batches, unsigned block, PARAMETERS) {
  gridDim = {grid, batches, 1};
  blockDim = {block, 1, 1};
  for (blockIdx = {0, 0, 0}; blockIdx.y < batches; ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x)
      for (threadIdx = {0, 0, 0}; threadIdx.x < block; ++threadIdx.x) transport::transport_kernel(ARGUMENTS);
}
void random_block(unsigned long long seed, unsigned long long particle, unsigned long long number, unsigned* words) {
  const auto block = transport::random_block(seed, particle, number);
  memcpy(words, &block, sizeof block);
}
void minus_logarithm(int n, const float* u, float* result) {
  for (int i = 0; i < n; ++i) result[i] = transport::minus_logarithm(u[i]);
}
void unit_circle(int n, const float* u, float* cosine, float* sine) {
  for (int i = 0; i < n; ++i) {
    const auto point = transport::unit_circle(u[i]);
    cosine[i] = point.cosine;
    sine[i] = point.sine;
  }
}
void turn(int n, const float* cosines, float* directions) {
  for (int i = 0; i < n; ++i) {
    transport::particle particle = {};
    memcpy(&particle.direction, directions + 3 * i, sizeof particle.direction);
    particle.random = transport::stream_of(1, i);
    transport::turn(cosines[i], particle);
    memcpy(directions + 3 * i, &particle.direction, sizeof particle.direction);
  }
}
}
"""
_TYPES: Final = {"unsigned long long": ctypes.c_uint64, "uint32_t": ctypes.c_uint32, "float": ctypes.c_float}


class Host:
    """Compiles variants into a directory, and runs them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.family = declaration.load_family(declaration.find_family("transport"))
        self.rendered: list[RenderedSource] = list(render_family(self.family))
        (directory / "cuda" / "std").mkdir(parents=True)
        (directory / "cuda" / "std" / "cstdint").write_text(_CSTDINT)
        (directory / "shim.h").write_text(_SHIM)
        self.library = cache(self._library)

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """Type and name of each of the kernel's parameters."""
        text = (self.family.path.parent / "transport_kernel.cuh").read_text("utf-8")
        text = text.replace("__restrict__ ", "").replace("wide_t", "unsigned long long")
        listed = re.findall(r"transport_kernel\(([^)]*)\)", text)[-1].split(",")
        return [(type_, name) for type_, _, name in (" ".join(each.split()).rpartition(" ") for each in listed)]

    def _library(self, configuration: frozenset[tuple[str, str]]) -> ctypes.CDLL:
        """The kernel of a configuration as a shared library."""
        chosen = [r for r in self.rendered if set(r.key.parameters) <= configuration]
        assert len({r.group.name for r in chosen}) == len(chosen) == len(self.family.groups)
        main = _MAIN.replace("PARAMETERS", ", ".join(" ".join(p) for p in self.parameters))
        main = main.replace("ARGUMENTS", ", ".join(name for _, name in self.parameters))
        source = self.directory / ("-".join(value for _, value in sorted(configuration)) + ".cpp")
        source.write_text('#include "shim.h"\n' + "".join(r.text for r in chosen) + main)
        library = source.with_suffix(".so")
        includes = [f"-I{path}" for path in (self.directory, *self.family.include)]
        # -ffp-contract=off is to this compiler what `fma = false` is to NVRTC and nvJitLink.
        command = [COMPILER or "g++", "-std=c++17", "-O2", "-march=native", "-ffp-contract=off", "-shared", "-fPIC"]
        subprocess.run([*command, "-x", "c++", *includes, str(source), "-o", str(library)], check=True, timeout=120)
        return ctypes.CDLL(str(library))

    def simulate(self, problem: Problem, run: Run, *, grid: int = 1, block: int = 3) -> Tallies:
        """What `docs.examples.transport.simulate` does, without a GPU."""
        library = self.library(frozenset(problem.configuration(run.tally, run.generator).items()))
        flux = np.zeros((run.batches, problem.groups, math.prod(problem.cells)), np.uint64)
        ledger = np.zeros((run.batches, len(LEDGER)), np.uint64)
        values: dict[str, Any] = {**tables(problem), **scalars(problem, run), "flux": flux, "ledger": ledger}
        arguments = [
            values[name].ctypes.data_as(ctypes.c_void_p) if "*" in type_ else _TYPES[type_](values[name])
            for type_, name in self.parameters
        ]
        library.launch(grid, run.batches, block, *arguments)
        return Tallies.of(problem, run, flux, ledger)

    def any_library(self, **choice: str) -> ctypes.CDLL:
        """Some kernel with these values, for what all of them contain."""
        problem = Problem((1, 1, 1), (1, 1, 1), [Material((1.0,), (1.0,))])
        return self.library(frozenset((problem.configuration("collision", "philox_10") | choice).items()))

    def random_block(self, generator: str, seed: int, particle: int, number: int) -> list[int]:
        """Four words of a generator."""
        words = (ctypes.c_uint32 * 4)()
        wide = (ctypes.c_uint64(value) for value in (seed, particle, number))
        self.any_library(generator_name=generator).random_block(*wide, words)
        return list(words)

    def turned(
        self, geometry: str, cosines: NDArray[np.float32], directions: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Directions (n × 3) turned by angles of these cosines."""
        turned = np.array(directions, np.float32)
        library = self.any_library(geometry_name=geometry)
        library.turn(
            len(turned),
            *(a.ctypes.data_as(ctypes.c_void_p) for a in (np.ascontiguousarray(cosines, np.float32), turned)),
        )
        return turned

    def elementary(self, name: str, u: NDArray[np.float32], results: int) -> list[NDArray[np.float32]]:
        """An elementary function of many numbers."""
        u = np.ascontiguousarray(u, np.float32)
        found = [np.empty_like(u) for _ in range(results)]
        getattr(self.any_library(), name)(len(u), *(a.ctypes.data_as(ctypes.c_void_p) for a in (u, *found)))
        return found
