// SPDX-License-Identifier: Apache-2.0
// Ids of centres as the numbers of lists.
#pragma once

#include "types.cuh"

namespace ivf_flat {

// Writes ids with 32 bits: −1 becomes no_list. Launch with a thread per id.
__global__ void narrow_ids(const int64_t* __restrict__ ids, uint32_t* __restrict__ lists, uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) { lists[i] = static_cast<uint32_t>(ids[i]); }
}

}  // namespace ivf_flat
