// SPDX-License-Identifier: Apache-2.0
// Rows of a matrix, one a warp.
#pragma once

#include "warp.cuh"

namespace ivf_flat {

// The row of this warp, in a grid of a warp per row.
__device__ __forceinline__ uint64_t row_of_warp() {
  return static_cast<uint64_t>(blockIdx.x) * (blockDim.x / warp_size) + threadIdx.x / warp_size;
}

}  // namespace ivf_flat
