// SPDX-License-Identifier: Apache-2.0
// The words of the filter `bitset`.
#pragma once

#include "warp.cuh"

namespace ivf_flat {

// Writes a bit for each byte of `flags`, the first in the lowest bit. Launch with a thread per bit of the words.
__global__ void pack_bits(const void* __restrict__ flags, uint32_t* __restrict__ words, uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  const bool flag = i < count && static_cast<const uint8_t*>(flags)[i] != 0;
  const uint32_t word = __ballot_sync(all_lanes, flag);
  if (lane_index() == 0 && i / warp_size * warp_size < count) { words[i / warp_size] = word; }
}

}  // namespace ivf_flat
