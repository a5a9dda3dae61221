// SPDX-License-Identifier: Apache-2.0
// Vectors of any type as float.
#pragma once

#include "rows.cuh"

namespace ivf_flat {

// Writes every `stride`-th row of `rows`. Launch with a warp per row written.
template <typename T>
__global__ void convert_rows(const T* __restrict__ rows, float* __restrict__ converted, uint32_t num_rows, uint32_t dim,
                             uint32_t stride) {
  const uint64_t row = row_of_warp();
  if (row >= num_rows) { return; }
  for (uint32_t c = lane_index(); c < dim; c += warp_size) {
    converted[row * dim + c] = static_cast<float>(rows[row * stride * dim + c]);
  }
}

}  // namespace ivf_flat
