// SPDX-License-Identifier: Apache-2.0
// Neighbouring numbers of a row, as one access reads or writes them; in registers they are float. For callers too.
#pragma once

struct __half;  // include <cuda_fp16.h> to use these, and <cuda_bf16.h>
struct __nv_bfloat16;

namespace segment_reduce {

// The type whose access has this many bytes; 16 is the widest of the hardware.
template <int Bytes>
struct access_word;
template <>
struct access_word<2> { using type = unsigned short; };
template <>
struct access_word<4> { using type = unsigned int; };
template <>
struct access_word<8> { using type = uint2; };
template <>
struct access_word<16> { using type = uint4; };

// Exact.
template <typename T>
__device__ __forceinline__ float widen(const T& x) {
  return static_cast<float>(x);
}
__device__ __forceinline__ float widen(const __nv_bfloat16& x) {
  unsigned short bits;
  memcpy(&bits, &x, sizeof(bits));
  return __uint_as_float(static_cast<unsigned int>(bits) << 16);
}

// Rounded to nearest if the stored type is narrower: of bfloat16 by integers, as no instruction does on every
// architecture, so that the same code is for all.
template <typename T>
__device__ __forceinline__ void narrow(T& stored, float x) {
  stored = static_cast<T>(x);
}
__device__ __forceinline__ void narrow(__nv_bfloat16& stored, float x) {
  const unsigned int bits = __float_as_uint(x);
  const unsigned short rounded = x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fff;
  memcpy(&stored, &rounded, sizeof(rounded));
}

// Whether numbers from here on can be accessed V at a time. Arrays may begin at any of their numbers.
template <int V, typename T>
__device__ __forceinline__ bool is_aligned(const T* pointer) {
  return V == 1 || reinterpret_cast<unsigned long long>(pointer) % (V * sizeof(T)) == 0;
}

// Reads numbers `first` to `first + V - 1` of an array, which nothing writes while the kernel runs. As `first` is a
// multiple of V, one access is enough if the array is aligned, which the compiler asks once for all elements.
template <int V, typename T>
__device__ __forceinline__ void load_vector(const T* array, unsigned long long first, float (&value)[V]) {
  T stored[V];
  if (is_aligned<V>(array)) {
    using word_type = typename access_word<V * sizeof(T)>::type;
    const word_type word = __ldg(reinterpret_cast<const word_type*>(array + first));
    memcpy(stored, &word, sizeof(word));  // moves registers only; a cast would break the aliasing rules
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) { stored[i] = __ldg(array + first + i); }
  }
#pragma unroll
  for (int i = 0; i < V; ++i) { value[i] = widen(stored[i]); }
}

// Writes V numbers, each rounded once.
template <int V, typename T>
__device__ __forceinline__ void store_vector(T* pointer, const float (&value)[V]) {
  T stored[V];
#pragma unroll
  for (int i = 0; i < V; ++i) { narrow(stored[i], value[i]); }
  if (is_aligned<V>(pointer)) {
    typename access_word<V * sizeof(T)>::type word;
    memcpy(&word, stored, sizeof(word));
    *reinterpret_cast<decltype(word)*>(pointer) = word;
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) { pointer[i] = stored[i]; }
  }
}

}  // namespace segment_reduce
