// SPDX-License-Identifier: Apache-2.0
// What lists hold, to where they begin as they become.
#pragma once

#include "warp.cuh"

namespace ivf_flat {

// Copies the groups of each list; a group has so many units of 16 bytes. Launch with a block per list.
__global__ void move_lists(const void* __restrict__ from, void* __restrict__ to, const uint32_t* __restrict__ sizes,
                           const uint32_t* __restrict__ groups_before, const uint32_t* __restrict__ groups_after,
                           uint32_t units_per_group) {
  const uint32_t list = blockIdx.x;
  const uint64_t units = units_per_group;
  const uint64_t count = (sizes[list] + warp_size - 1) / warp_size * units;
  const uint4* const before = static_cast<const uint4*>(from) + groups_before[list] * units;
  uint4* const after = static_cast<uint4*>(to) + groups_after[list] * units;
  for (uint64_t i = threadIdx.x; i < count; i += blockDim.x) { after[i] = before[i]; }
}

}  // namespace ivf_flat
