// SPDX-License-Identifier: Apache-2.0
// The types of elements in memory and in computations: the same for float and double, while __half is computed in
// float.
#pragma once

#include <cuda_fp16.h>

namespace fft {

// For a stored element, real or complex: the type that it is computed in, and the real type of that.
template <typename Stored>
struct computed;
template <>
struct computed<float> { using type = float; using real = float; };
template <>
struct computed<float2> { using type = float2; using real = float; };
template <>
struct computed<double> { using type = double; using real = double; };
template <>
struct computed<double2> { using type = double2; using real = double; };
template <>
struct computed<__half> { using type = float; using real = float; };
template <>
struct computed<__half2> { using type = float2; using real = float; };

template <typename Stored>
using computed_t = typename computed<Stored>::type;
template <typename Stored>
using real_t = typename computed<Stored>::real;

// Converts a stored element for computation. Exact.
__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float2 widen(float2 x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ double2 widen(double2 x) { return x; }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }
__device__ __forceinline__ float2 widen(__half2 x) { return __half22float2(x); }

// Converts a computed element for storage: rounded to nearest if the stored type is narrower.
__device__ __forceinline__ void narrow(float& stored, float x) { stored = x; }
__device__ __forceinline__ void narrow(float2& stored, float2 x) { stored = x; }
__device__ __forceinline__ void narrow(double& stored, double x) { stored = x; }
__device__ __forceinline__ void narrow(double2& stored, double2 x) { stored = x; }
__device__ __forceinline__ void narrow(__half& stored, float x) { stored = __float2half_rn(x); }
__device__ __forceinline__ void narrow(__half2& stored, float2 x) { stored = __float22half2_rn(x); }

// A real factor times an element.
__device__ __forceinline__ float scaled(float factor, float x) { return factor * x; }
__device__ __forceinline__ float2 scaled(float factor, float2 x) { return {factor * x.x, factor * x.y}; }
__device__ __forceinline__ double scaled(double factor, double x) { return factor * x; }
__device__ __forceinline__ double2 scaled(double factor, double2 x) { return {factor * x.x, factor * x.y}; }

// The position of an element if rows of `length` elements follow each other without gaps.
__device__ __forceinline__ unsigned long long offset(unsigned int row, unsigned int length, unsigned int index) {
  return static_cast<unsigned long long>(row) * length + index;
}

}  // namespace fft
