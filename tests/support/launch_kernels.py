"""Kernels of launch tests: one takes an argument of each scalar type, the others need a kind of launch each."""

from __future__ import annotations

#: Templates by file name.
TEMPLATES = {
    "scalars.cu.jinja": """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
__global__ void scalars(double* out, bool b, signed char c, unsigned short s, int i, unsigned long long u, float f,
                        double d, __half h, __nv_bfloat16 g, const float* p) {
  out[0] = b; out[1] = c; out[2] = s; out[3] = i; out[4] = u >> 32; out[5] = f; out[6] = d;
  out[7] = __half2float(h); out[8] = __bfloat162float(g); out[9] = p == nullptr;
}
""",
    "barrier.cu.jinja": """
// Ends only if all blocks of the grid run at the same time.
__global__ void barrier(unsigned* arrived) {
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1u);
    while (atomicAdd(arrived, 0u) < gridDim.x) {}
  }
}
""",
    "shared.cu.jinja": """
__global__ void shared(unsigned* out, unsigned words) {
  extern __shared__ unsigned buffer[];
  for (unsigned k = threadIdx.x; k < words; k += blockDim.x) buffer[k] = k;
  __syncthreads();
  if (threadIdx.x == 0) *out = buffer[words - 1];
}
""",
    "clusters.cu.jinja": """
__global__ void clusters(unsigned* out) {
#if __CUDA_ARCH__ >= 900
  unsigned blocks;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
  if (threadIdx.x == 0) out[blockIdx.x] = blocks;
#endif
}
""",
}
