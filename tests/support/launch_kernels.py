"""Kernels of launch tests: one takes an argument of each scalar type, the others need a kind of launch each."""

#: A family of them, by file name.
FAMILY = {
    "family.toml": """
[family]
name = "kernels"
archs = ["75", "90"]

[entrypoint.scalars]
matrix = "one.json"
template = "scalars.cu.jinja"

[entrypoint.barrier]
matrix = "one.json"
template = "barrier.cu.jinja"

[entrypoint.shared]
matrix = "one.json"
template = "shared.cu.jinja"

[entrypoint.bfloat]
matrix = "one.json"
template = "bfloat.cu.jinja"
params = ["__nv_bfloat16* x", "unsigned n"]

[entrypoint.clusters]
matrix = "one.json"
template = "clusters.cu.jinja"

[entrypoint.axpy]
matrix = "one.json"
template = "axpy.cu.jinja"
params = ["float a", "const float* x", "float* y", "unsigned n"]

[entrypoint.late]
matrix = "one.json"
template = "late.cu.jinja"
""",
    "one.json": "{}",
    "bfloat.cu.jinja": """
#include <cuda_bf16.h>
__global__ void bfloat(__nv_bfloat16* x, unsigned n) {
  if (threadIdx.x < n) x[threadIdx.x] = __float2bfloat16(2.0f * __bfloat162float(x[threadIdx.x]));
}
""",
    "axpy.cu.jinja": """
__global__ void axpy(float a, const float* x, float* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
""",
    "late.cu.jinja": """
// axpy after some milliseconds.
__global__ void late(float a, const float* x, float* y, unsigned n) {
  long long begin = clock64();
  while (clock64() - begin < 10000000) {}
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
""",
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
