// SPDX-License-Identifier: Apache-2.0
// The elements of rows, from `segment_load` into results in registers.
#pragma once

#include "place.cuh"
#include "segment_load.cuh"

namespace segment_reduce {

// How the kernel reads: its parameters for that, and a thread's place.
template <typename Stored, int V>
struct reader {
  const Stored* values;
  unsigned int width;
  void* info;
  place<V> me;

  // So many elements of a thread are in flight at once. Loads are gathers whose latency nothing else hides.
  enum : unsigned int { flight = V < 4 ? 8 : 4 };

  // x[i] = element `begin + number + i * step`, or instead of one behind the `count` elements from `begin` on, the last.
  // There is no branch around the call: it would make each element wait for the previous one.
  template <int Count>
  __device__ __forceinline__ void load(unsigned long long begin, unsigned int count, unsigned int number,
                                       unsigned int step, float (&x)[Count][V]) const {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      segment_load(values, begin + ::min(number + i * step, count - 1), me.column, width, info, x[i]);
    }
  }
};

// Combines elements `number`, `number + step`, ... of those from `begin` to `end` with the result, in this order.
template <typename Reduction, typename Stored, int V>
__device__ __forceinline__ void reduce_elements(const reader<Stored, V>& from, unsigned long long begin,
                                                unsigned long long end, unsigned int number, unsigned int step,
                                                float (&result)[V]) {
  constexpr unsigned int flight = reader<Stored, V>::flight, most = 1u << 30;  // numbers of 32 bits take half the time
  for (; begin < end; begin += most) {
    const unsigned int count = end - begin < most ? end - begin : most;
    for (unsigned int at = number; at < count; at += flight * step) {
      float x[flight][V];
      from.load(begin, count, at, step, x);
#pragma unroll
      for (unsigned int i = 0; i < flight; ++i) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const float combined = Reduction::combine(result[v], x[i][v]);
          result[v] = at + i * step < count ? combined : result[v];
        }
      }
    }
  }
}

}  // namespace segment_reduce
