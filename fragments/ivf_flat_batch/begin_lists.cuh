// SPDX-License-Identifier: Apache-2.0
// Sorting pairs by list, step 3: where the pairs and the tiles of each list begin.
#pragma once

#include "tile.cuh"

namespace ivf_flat {

// Two sums at once.
struct begins {
  uint32_t pairs;
  uint32_t tiles;
};

__device__ __forceinline__ begins operator+(begins a, begins b) { return {a.pairs + b.pairs, a.tiles + b.tiles}; }

// Returns the sum over this lane and all before it.
__device__ __forceinline__ begins sum_to_lane(begins own) {
#pragma unroll
  for (uint32_t offset = 1; offset < warp_size; offset *= 2) {
    const begins other = {__shfl_up_sync(all_lanes, own.pairs, offset), __shfl_up_sync(all_lanes, own.tiles, offset)};
    if (lane_index() >= offset) { own = own + other; }
  }
  return own;
}

// Writes for each list the number of pairs of the lists before it, twice (step 4 counts on in `next`), and of their
// tiles; the last entries, num_lists, are the sums. Where `list_sizes` is null there are no tiles, and `tile_begins` is
// null too: so vectors are sorted (`count_rows.cuh`). Launch one block of 1024 threads with 256 bytes of dynamic shared
// memory.
__global__ void begin_lists(const uint32_t* __restrict__ counts, const uint32_t* __restrict__ list_sizes,
                            uint32_t* __restrict__ pair_begins, uint32_t* __restrict__ tile_begins,
                            uint32_t* __restrict__ next, uint32_t num_lists) {
  if (blockDim.x != warp_size * warp_size) { __trap(); }
  extern __shared__ uint4 dynamic_shared[];
  begins* const of_warps = reinterpret_cast<begins*>(dynamic_shared);
  const uint32_t warp = threadIdx.x / warp_size;
  begins before = {0, 0};  // of the lists that earlier rounds have seen
#pragma unroll 1
  for (uint32_t first = 0; first < num_lists; first += blockDim.x) {
    const uint32_t list = first + threadIdx.x;
    begins own = {0, 0};
    if (list < num_lists) {
      const uint32_t count = counts[list];
      own = {count, list_sizes == nullptr ? 0 : count_tiles(count, list_sizes[list])};
    }
    const begins to_lane = sum_to_lane(own);
    if (lane_index() == warp_size - 1) { of_warps[warp] = to_lane; }
    __syncthreads();
    if (warp == 0) { of_warps[lane_index()] = sum_to_lane(of_warps[lane_index()]); }
    __syncthreads();
    const begins to_list = before + (warp == 0 ? begins{0, 0} : of_warps[warp - 1]) + to_lane;
    if (list < num_lists) {
      pair_begins[list] = next[list] = to_list.pairs - own.pairs;
      if (tile_begins != nullptr) { tile_begins[list] = to_list.tiles - own.tiles; }
    }
    before = before + of_warps[warp_size - 1];
    __syncthreads();  // the next round writes there
  }
  if (threadIdx.x == 0) {
    pair_begins[num_lists] = before.pairs;
    if (tile_begins != nullptr) { tile_begins[num_lists] = before.tiles; }
  }
}

}  // namespace ivf_flat
