// SPDX-License-Identifier: Apache-2.0
// What the threads of a block exchange, in 8 or 16 KB of shared memory.
#pragma once

#include "place.cuh"

namespace segment_reduce {

template <int V>
struct buffer {
  enum : unsigned int { flight = V == 1 ? 8 : 16 / V, size = flight * place<V>::block };
  float numbers[V][size];  // a plane for each of a thread's columns
  unsigned int smallest;

  // Rows often have the same length, such as 32; without this, all threads would then access one bank.
  static __device__ __forceinline__ unsigned int slot(unsigned int i) { return i ^ i / 32 % 32; }

  __device__ __forceinline__ void put(unsigned int i, const float (&value)[V]) {
#pragma unroll
    for (int v = 0; v < V; ++v) { numbers[v][slot(i)] = value[v]; }
  }

  template <typename Reduction>
  __device__ __forceinline__ void combine(unsigned int i, float (&result)[V]) const {
#pragma unroll
    for (int v = 0; v < V; ++v) { result[v] = Reduction::combine(result[v], numbers[v][slot(i)]); }
  }

  // Of the threads that vote, the smallest number, or else `most`. For all threads of the block.
  __device__ __forceinline__ unsigned int least(unsigned int most, bool votes, unsigned int number) {
    __syncthreads();  // what was there has been read
    if (threadIdx.x == 0) { smallest = most; }
    __syncthreads();
    if (votes) { atomicMin(&smallest, number); }
    __syncthreads();
    return smallest;
  }
};

}  // namespace segment_reduce
