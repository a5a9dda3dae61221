#pragma once
#include "clamp.cuh"
#include "config.inc"
#include "udf.cuh"

namespace vendor {
template <typename T, int Unroll>
__global__ void apply(T* values, unsigned n) {
  for (int k = 0; k < Unroll; ++k) {
    unsigned i = (blockIdx.x * blockDim.x + threadIdx.x) * Unroll + k;
    if (i < n) values[i] = vendor_clamp(udf(values[i]));
  }
}

#ifndef __CUDACC_RTC__
template <typename T, int Unroll>
cudaError_t run_apply(T* values, unsigned n, cudaStream_t stream) {
  apply<T, Unroll><<<(n + 255) / 256, 256, 0, stream>>>(values, n);
  return cudaGetLastError();
}
#endif
}  // namespace vendor
