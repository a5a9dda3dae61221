// SPDX-License-Identifier: Apache-2.0
// Sorting vectors by list, the last step: the place of each vector, and the vectors in the order of their lists.
#pragma once

#include "scan_lists.cuh"

namespace ivf_flat {

// Writes the place of each row that belongs to a list, and the row at each place. `next` holds where the rows of each
// list and part begin, and then where they end. Launch with a warp per part.
__global__ void place_rows(const uint32_t* __restrict__ labels, uint32_t* next, uint32_t* __restrict__ places,
                           uint32_t* __restrict__ order, uint32_t num_rows, uint32_t rows_per_part, uint32_t parts) {
  const uint32_t part = blockIdx.x * (blockDim.x / warp_size) + threadIdx.x / warp_size;
  if (part >= parts) { return; }
  const uint64_t begin = static_cast<uint64_t>(part) * rows_per_part;
  const uint64_t end = begin + rows_per_part < num_rows ? begin + rows_per_part : num_rows;
#pragma unroll 1
  for (uint64_t first = begin; first < end; first += warp_size) {
    const uint64_t row = first + lane_index();
    const uint32_t list = row < end ? __ldg(labels + row) : no_list;
    const uint32_t same = __match_any_sync(all_lanes, list);
    const uint32_t before = __popc(same & ((1u << lane_index()) - 1));
    const bool placed = list != no_list;
    uint32_t* const own = next + static_cast<uint64_t>(placed ? list : 0) * parts + part;
    const uint32_t place = *own + before;
    __syncwarp();  // all have read it
    if (placed) {
      if (before == 0) { *own = place + __popc(same); }
      places[row] = place;
      order[place] = static_cast<uint32_t>(row);
    }
    __syncwarp();  // the next step reads what this one has written
  }
}

}  // namespace ivf_flat
