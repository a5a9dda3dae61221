// SPDX-License-Identifier: Apache-2.0
// The warp: its size, its lanes.
#pragma once

#include "types.cuh"

namespace ivf_flat {

// Plain constexpr, which is internal to the fragment: an `inline` variable would be one of its symbols.
constexpr uint32_t warp_size = 32;
constexpr uint32_t all_lanes = 0xffffffffu;

__device__ __forceinline__ uint32_t lane_index() { return threadIdx.x % warp_size; }

}  // namespace ivf_flat
