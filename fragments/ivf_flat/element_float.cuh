// SPDX-License-Identifier: Apache-2.0
// Arithmetic on float, added up in float.
#pragma once

#include "packed.cuh"

namespace ivf_flat {

template <>
struct element<float> {
  static __device__ __forceinline__ float add_product(float sum, float a, float b) { return sum + a * b; }

  static __device__ __forceinline__ float add_product(float sum, float4 a, float4 b) {
    sum = add_product(sum, a.x, b.x);
    sum = add_product(sum, a.y, b.y);
    sum = add_product(sum, a.z, b.z);
    return add_product(sum, a.w, b.w);
  }

  static __device__ __forceinline__ float add_squared_difference(float sum, float a, float b) {
    const float difference = a - b;
    return sum + difference * difference;
  }

  static __device__ __forceinline__ float add_squared_difference(float sum, float4 a, float4 b) {
    sum = add_squared_difference(sum, a.x, b.x);
    sum = add_squared_difference(sum, a.y, b.y);
    sum = add_squared_difference(sum, a.z, b.z);
    return add_squared_difference(sum, a.w, b.w);
  }
};

}  // namespace ivf_flat
