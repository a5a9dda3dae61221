// SPDX-License-Identifier: Apache-2.0
// Arithmetic on __half, added up in float: a __half has 11 bits and ends at 65504, so that a sum of a hundred squares
// of ordinary size would lose its low digits or overflow. The scan waits for memory, not for the conversions.
#pragma once

#include <cuda_fp16.h>

#include "element_float.cuh"

namespace ivf_flat {

template <>
struct element<__half> {
  static __device__ __forceinline__ float add_product(float sum, __half a, __half b) {
    return element<float>::add_product(sum, __half2float(a), __half2float(b));  // exact but for the sum
  }

  static __device__ __forceinline__ float add_product(float sum, uint4 a, uint4 b) {
    return element<float>::add_product(element<float>::add_product(sum, low(a), low(b)), high(a), high(b));
  }

  static __device__ __forceinline__ float add_squared_difference(float sum, __half a, __half b) {
    return element<float>::add_squared_difference(sum, __half2float(a), __half2float(b));
  }

  static __device__ __forceinline__ float add_squared_difference(float sum, uint4 a, uint4 b) {
    sum = element<float>::add_squared_difference(sum, low(a), low(b));
    return element<float>::add_squared_difference(sum, high(a), high(b));
  }

 private:
  // The first four and the last four of eight components.
  static __device__ __forceinline__ float4 low(uint4 bits) { return four(bits.x, bits.y); }
  static __device__ __forceinline__ float4 high(uint4 bits) { return four(bits.z, bits.w); }

  static __device__ __forceinline__ float4 four(uint32_t first, uint32_t second) {
    const float2 a = two(first);
    const float2 b = two(second);
    return {a.x, a.y, b.x, b.y};
  }

  static __device__ __forceinline__ float2 two(uint32_t bits) {
    __half2 pair;
    memcpy(&pair, &bits, sizeof(pair));  // moves a register only; a cast would break the aliasing rules
    return __half22float2(pair);
  }
};

}  // namespace ivf_flat
