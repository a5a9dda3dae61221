// SPDX-License-Identifier: Apache-2.0
// Reading several consecutive elements with as few memory accesses as possible.
#pragma once

#include "types.cuh"

namespace search {

// The type whose load is one access of this many bytes; 16 is the widest access of the hardware.
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

// Returns whether every row of both matrices is aligned to accesses of Access elements. This also makes dim a
// multiple of Access, so a row has no tail. It is the same for all threads, so a kernel branches on it once.
template <int Access, typename T>
__device__ __forceinline__ bool is_aligned(const T* dataset, const T* queries, uint32_t dim) {
  const uint64_t starts = reinterpret_cast<uintptr_t>(dataset) | reinterpret_cast<uintptr_t>(queries)
                          | (static_cast<uint64_t>(dim) * sizeof(T));
  return starts % (Access * sizeof(T)) == 0;
}

// Reads Count elements, Access at a time, through the read-only path (ld.global.nc): nothing writes to the source
// while the kernel runs. The source must be aligned to one access.
template <int Access, int Count, typename T>
__device__ __forceinline__ void load(const T* source, T (&elements)[Count]) {
  static_assert(Count % Access == 0, "a load is a whole number of accesses");
  using word_type = typename access_word<Access * sizeof(T)>::type;
#pragma unroll
  for (int i = 0; i < Count; i += Access) {
    const word_type word = __ldg(reinterpret_cast<const word_type*>(source + i));
    memcpy(&elements[i], &word, sizeof(word));  // moves registers only; a cast would break the aliasing rules
  }
}

}  // namespace search
