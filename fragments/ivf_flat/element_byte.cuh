// SPDX-License-Identifier: Apache-2.0
// Arithmetic on uint8_t and int8_t, added up exactly in integers of 32 bits, four components an instruction: absolute
// differences of packed bytes (vabsdiff4), then their dot product (dp4a, which all architectures from 6.1 have).
//
// A term is at most 255², so that vectors of up to 33,025 components cannot overflow an int32_t.
#pragma once

#include "packed.cuh"

namespace ivf_flat {

// As PTX, for the compiler of CUDA 13 cannot compile the intrinsic __dp4a for debugging, as a build has to.
__device__ __forceinline__ uint32_t dot_unsigned(uint32_t a, uint32_t b, uint32_t sum) {
  uint32_t result;
  asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
  return result;
}

__device__ __forceinline__ int32_t dot_signed(uint32_t a, uint32_t b, int32_t sum) {
  int32_t result;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
  return result;
}

template <>
struct element<uint8_t> {
  static __device__ __forceinline__ uint32_t add_product(uint32_t sum, uint8_t a, uint8_t b) {
    return sum + static_cast<uint32_t>(a) * b;
  }

  static __device__ __forceinline__ uint32_t add_product(uint32_t sum, uint4 a, uint4 b) {
    return dot_unsigned(a.w, b.w, dot_unsigned(a.z, b.z, dot_unsigned(a.y, b.y, dot_unsigned(a.x, b.x, sum))));
  }

  static __device__ __forceinline__ uint32_t add_squared_difference(uint32_t sum, uint8_t a, uint8_t b) {
    const int32_t difference = static_cast<int32_t>(a) - b;
    return sum + static_cast<uint32_t>(difference * difference);
  }

  static __device__ __forceinline__ uint32_t add_squared_difference(uint32_t sum, uint4 a, uint4 b) {
    const uint4 d = {__vabsdiffu4(a.x, b.x), __vabsdiffu4(a.y, b.y), __vabsdiffu4(a.z, b.z), __vabsdiffu4(a.w, b.w)};
    return add_product(sum, d, d);
  }
};

template <>
struct element<int8_t> {
  static __device__ __forceinline__ int32_t add_product(int32_t sum, int8_t a, int8_t b) {
    return sum + static_cast<int32_t>(a) * b;
  }

  static __device__ __forceinline__ int32_t add_product(int32_t sum, uint4 a, uint4 b) {
    return dot_signed(a.w, b.w, dot_signed(a.z, b.z, dot_signed(a.y, b.y, dot_signed(a.x, b.x, sum))));
  }

  static __device__ __forceinline__ int32_t add_squared_difference(int32_t sum, int8_t a, int8_t b) {
    const int32_t difference = static_cast<int32_t>(a) - b;
    return sum + difference * difference;
  }

  // The absolute difference of two signed bytes is at most 255: an unsigned byte.
  static __device__ __forceinline__ int32_t add_squared_difference(int32_t sum, uint4 a, uint4 b) {
    const uint4 d = {__vabsdiffs4(a.x, b.x), __vabsdiffs4(a.y, b.y), __vabsdiffs4(a.z, b.z), __vabsdiffs4(a.w, b.w)};
    return static_cast<int32_t>(element<uint8_t>::add_product(static_cast<uint32_t>(sum), d, d));
  }
};

}  // namespace ivf_flat
