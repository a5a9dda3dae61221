// SPDX-License-Identifier: Apache-2.0
// A tile: up to 16 of the queries that probe a list, and up to 16 of its groups of 32 vectors. One block computes it.
#pragma once

#include "scan_lists.cuh"

namespace ivf_flat {

// A query more per tile is a vector less to read from memory, and an accumulator more in registers.
constexpr uint32_t queries_per_tile = 16;
// Groups of a warp. Each component of a query that is read from shared memory serves so many vectors of a lane.
constexpr uint32_t groups_per_warp = 2;
constexpr uint32_t groups_per_tile = warps_per_block * groups_per_warp;

__device__ __forceinline__ uint32_t divide_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// The tiles of a list of so many vectors that so many queries probe.
__device__ __forceinline__ uint32_t count_tiles(uint32_t num_queries, uint32_t size) {
  return divide_up(num_queries, queries_per_tile) * divide_up(divide_up(size, warp_size), groups_per_tile);
}

// Returns the list that a tile belongs to: the last one that begins at it or before it. `begins` ascends, its first
// entry is 0, and entry num_lists is greater than `tile`. All lanes of the warp together look at 32 entries at once.
__device__ __forceinline__ uint32_t find_list(const uint32_t* begins, uint32_t num_lists, uint32_t tile) {
  uint32_t low = 0;
  uint32_t high = num_lists;
#pragma unroll 1
  while (high - low > 1) {
    const uint32_t step = divide_up(high - low, warp_size);
    const uint32_t place = low + lane_index() * step;
    const bool before = place < high && __ldg(begins + place) <= tile;
    low += (__popc(__ballot_sync(all_lanes, before)) - 1) * step;
    high = low + step < high ? low + step : high;
  }
  return low;
}

}  // namespace ivf_flat
