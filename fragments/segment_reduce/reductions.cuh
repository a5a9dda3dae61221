// SPDX-License-Identifier: Apache-2.0
// The reductions: what a result begins with, how a number is added to it, and what it is at the end. Of no elements
// they give what torch.segment_reduce does: 0, NaN (0 / 0) and minus infinity.
#pragma once

namespace segment_reduce {

struct sum {
  static __device__ __forceinline__ float identity() { return 0.0f; }
  static __device__ __forceinline__ float combine(float result, float x) { return result + x; }
  static __device__ __forceinline__ float finish(float result, unsigned long long /*elements*/) { return result; }
};

struct mean : sum {
  // Divides, without the branches of a division for divisors that are no numbers of elements.
  static __device__ __forceinline__ float finish(float result, unsigned long long elements) {
    const float count = static_cast<float>(elements), inverse = __fdividef(1.0f, count), quotient = result * inverse;
    const float rest = fmaf(-quotient, count, result);
    return rest == rest ? fmaf(rest, inverse, quotient) : quotient;  // of infinity and NaN there is no rest
  }
};

struct max {
  // Minus infinity.
  static __device__ __forceinline__ float identity() { return __int_as_float(0xff800000); }
  // A NaN is the largest.
  static __device__ __forceinline__ float combine(float result, float x) { return x > result || x != x ? x : result; }
  static __device__ __forceinline__ float finish(float result, unsigned long long /*elements*/) { return result; }
};

}  // namespace segment_reduce
