// SPDX-License-Identifier: Apache-2.0
// The best of a row of distances, by one warp or several.
#pragma once

#include "selection.cuh"

namespace ivf_flat {

// Distances that a lane has in flight.
constexpr uint32_t loads_at_once = 8;

// Hands the best `count` candidates of a row to write(rank, key), the best first, and no_key for each that is missing;
// count ≤ Capacity. distance(i) is that of candidate i, a NaN is none; of equal distances the first is the better one.
// A row is selected by `warps` consecutive warps, a power of two. Called by all threads of the block; `shared` has a
// place for each warp.
template <int Capacity, order Order, typename Distance, typename Write>
__device__ __forceinline__ void select_row(uint32_t length, uint32_t count, uint32_t warps, uint64_t* shared,
                                           const Distance& distance, const Write& write) {
  const uint32_t rank = threadIdx.x / warp_size % warps;  // of this warp, among those of the row
  uint64_t* const own = shared + threadIdx.x / warp_size * selection<Capacity>::shared_keys;
  selection<Capacity> selected(own);
  constexpr uint32_t step = warp_size * loads_at_once;
#pragma unroll 1
  for (uint32_t begin = rank * step; begin < length; begin += warps * step) {
    float values[loads_at_once];
#pragma unroll
    for (uint32_t j = 0; j < loads_at_once; ++j) {
      const uint32_t i = begin + j * warp_size + lane_index();
      values[j] = i < length ? distance(i) : __uint_as_float(0x7fc00000u);
    }
#pragma unroll 1
    for (uint32_t j = 0; j < loads_at_once; ++j) {
      float value = values[0];  // moved down instead of indexed, which would need local memory
#pragma unroll
      for (uint32_t k = 0; k + 1 < loads_at_once; ++k) { values[k] = values[k + 1]; }
      selected.offer(value == value ? make_key<Order>(value, begin + j * warp_size + lane_index()) : no_key);
    }
  }
  warp_queue<Capacity>& queue = selected.finish();
  // Half of a row's warps hand their queues on to the other half, until one has them all.
#pragma unroll 1
  for (uint32_t half = warps / 2; half > 0; half /= 2) {
    if (rank >= half && rank < 2 * half) { queue.store(own); }
    __syncthreads();
    if (rank < half) { queue.take(own + half * selection<Capacity>::shared_keys); }
  }
  if (rank > 0) { return; }
#pragma unroll
  for (int r = 0; r < warp_queue<Capacity>::registers; ++r) {
    const uint32_t i = r * warp_size + lane_index();
    if (i < count) { write(i, queue.key(r)); }
  }
}

}  // namespace ivf_flat
