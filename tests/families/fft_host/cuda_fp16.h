// SPDX-License-Identifier: Apache-2.0
// As much of CUDA as the headers of the family `fft` use, for a host compiler: it stands in for the header of this name.
#pragma once

#include <cmath>

using std::fma;

#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct alignas(8) float2 { float x, y; };
struct alignas(16) double2 { double x, y; };
struct __half { _Float16 value; };
struct alignas(4) __half2 { __half x, y; };

template <typename T>
inline T __ldg(const T* place) { return *place; }

inline float __half2float(__half x) { return static_cast<float>(x.value); }
inline float2 __half22float2(__half2 x) { return {__half2float(x.x), __half2float(x.y)}; }
inline __half __float2half_rn(float x) { return {static_cast<_Float16>(x)}; }
inline __half2 __float22half2_rn(float2 x) { return {__float2half_rn(x.x), __float2half_rn(x.y)}; }

inline void sincospi(double x, double* sine, double* cosine) {
  const long double pi = 3.141592653589793238462643383279502884L;
  *sine = static_cast<double>(std::sin(pi * static_cast<long double>(x)));
  *cosine = static_cast<double>(std::cos(pi * static_cast<long double>(x)));
}

struct place { unsigned int x; };
extern thread_local place threadIdx, blockIdx;
void __syncthreads();
void __syncwarp();
