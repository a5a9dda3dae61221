// SPDX-License-Identifier: Apache-2.0
// Narrow rows, several of which lie in the piece of memory that a warp reads at once.
#pragma once

#include "elements.cuh"

namespace segment_reduce {

// Where a block puts elements, and afterwards its threads' parts of a long row: 8 or 16 KB.
template <int V>
struct buffer {
  enum : unsigned int { flight = V == 1 ? 8 : 16 / V, block = place<V>::block, size = flight * block };
  float numbers[V][size];  // a plane for each of a thread's columns

  // All rows may have the same length, a multiple of 32 perhaps; without this, threads would then access one bank.
  static __device__ __forceinline__ unsigned int slot(unsigned int i) { return i ^ i / 32 % 32; }
};

// Reduces the elements from `first` to `last`, of consecutive rows: all threads read elements one after the other into
// the buffer, whatever row they belong to, and each thread then combines those of its own row with its result, `begin` to
// `end`. For all threads of the block.
template <typename Reduction, typename Stored, int V>
__device__ __forceinline__ void stage_rows(const reader<Stored, V>& from, unsigned long long first,
                                           unsigned long long last, unsigned long long begin, unsigned long long end,
                                           buffer<V>& staged, float (&result)[V]) {
  const place<V>& me = from.me;
  const unsigned int chunk = buffer<V>::flight * me.lanes;
  for (; first < last; first += chunk) {
    const unsigned int count = last - first < chunk ? last - first : chunk;
    float x[buffer<V>::flight][V];
    if (me.active) { from.load(first, count, me.lane, me.lanes, x); }
    __syncthreads();  // what was there has been read
    if (me.active) {
#pragma unroll
      for (unsigned int i = 0; i < buffer<V>::flight; ++i) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          staged.numbers[v][staged.slot(threadIdx.x + i * me.lanes * me.columns)] = x[i][v];
        }
      }
    }
    __syncthreads();
    const unsigned int own_end = end <= first ? 0 : end - first < count ? end - first : count;
    for (unsigned int own = begin <= first ? 0 : begin - first < count ? begin - first : count; own < own_end; ++own) {
      const unsigned int slot = staged.slot(own * me.columns + threadIdx.x % me.columns);
#pragma unroll
      for (int v = 0; v < V; ++v) { result[v] = Reduction::combine(result[v], staged.numbers[v][slot]); }
    }
  }
}

}  // namespace segment_reduce
