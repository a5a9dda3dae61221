// SPDX-License-Identifier: Apache-2.0
// Some rows of a matrix, one after the other, and their squared norms.
#pragma once

#include "rows.cuh"

namespace ivf_flat {

// Writes the rows numbered `chosen`, and the squared norm of each. Launch with a warp per row written.
__global__ void gather_rows(const float* __restrict__ rows, const uint32_t* __restrict__ chosen,
                            float* __restrict__ gathered, float* __restrict__ squares, uint32_t num_rows,
                            uint32_t dim) {
  const uint64_t row = row_of_warp();
  if (row >= num_rows) { return; }
  const float* const own = rows + static_cast<uint64_t>(__ldg(chosen + row)) * dim;
  float square = 0;
  for (uint32_t c = lane_index(); c < dim; c += warp_size) {
    const float value = __ldg(own + c);
    gathered[row * dim + c] = value;
    square += value * value;
  }
#pragma unroll
  for (uint32_t offset = warp_size / 2; offset > 0; offset /= 2) {
    square += __shfl_xor_sync(all_lanes, square, offset);
  }
  if (lane_index() == 0) { squares[row] = square; }
}

}  // namespace ivf_flat
