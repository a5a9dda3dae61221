// SPDX-License-Identifier: Apache-2.0
// The results of a scan: all distances are written, or only the best.
#pragma once

#include "post_lambda.cuh"
#include "selection.cuh"

namespace ivf_flat {

// Writes one result, or that there is no result.
template <order Order>
__device__ __forceinline__ void write_result(float* distance_place, int64_t* neighbour_place, bool found,
                                             float distance, uint32_t slot, const int64_t* ids) {
  *distance_place = found ? post_lambda(distance) : no_distance<Order>();
  *neighbour_place = found ? __ldg(ids + slot) : -1;
}

// Writes every distance to its place in the query's row.
template <order Order>
struct all_results {
  const int64_t* ids;
  const uint32_t* probe_offsets;
  float* distances;
  int64_t* neighbours;

  __device__ __forceinline__ void take(uint32_t probe, uint32_t number, uint32_t slot, float distance, bool candidate) {
    const uint64_t place = static_cast<uint64_t>(__ldg(probe_offsets + probe)) + number;
    write_result<Order>(distances + place, neighbours + place, candidate, distance, slot, ids);
  }
};

// Keeps the best of each warp, and writes the best of the block.
template <int Capacity, order Order>
class best_results {
 public:
  // `shared` is the warp's own place in shared memory.
  __device__ __forceinline__ explicit best_results(uint64_t* shared) : selected_(shared) {}

  __device__ __forceinline__ void take(uint32_t, uint32_t, uint32_t slot, float distance, bool candidate) {
    selected_.offer(candidate ? make_key<Order>(distance, slot) : no_key);
  }

  // Called by all warps of the block. `shared` is what all of them have.
  template <uint32_t Warps>
  __device__ __forceinline__ void write(uint64_t (&shared)[Warps][selection<Capacity>::shared_keys],
                                        const int64_t* ids, float* distances, int64_t* neighbours, uint32_t count) {
    warp_queue<Capacity>& queue = selected_.finish();
    const uint32_t warp = threadIdx.x / warp_size;
    // Half of the warps hand their queues on to the other half, until one has them all.
#pragma unroll 1
    for (uint32_t half = Warps / 2; half > 0; half /= 2) {
      if (warp >= half && warp < 2 * half) { queue.store(shared[warp]); }
      __syncthreads();
      if (warp < half) { queue.take(shared[warp + half]); }
    }
    if (warp > 0) { return; }
#pragma unroll
    for (int r = 0; r < warp_queue<Capacity>::registers; ++r) {
      const uint32_t i = r * warp_size + lane_index();
      const uint64_t key = queue.key(r);
      if (i < count) {
        write_result<Order>(distances + i, neighbours + i, key != no_key, key_distance<Order>(key), key_slot(key), ids);
      }
    }
  }

 private:
  selection<Capacity> selected_;
};

}  // namespace ivf_flat
