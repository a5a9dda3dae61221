// SPDX-License-Identifier: Apache-2.0
// Bitonic sorting in a warp: K. E. Batcher, «Sorting networks and their applications», AFIPS 1968.
#pragma once

#include "warp.cuh"

namespace ivf_flat {

__device__ __forceinline__ uint64_t smaller(uint64_t a, uint64_t b) { return b < a ? b : a; }

// One step of a network: each lane compares its key with that of the lane `stride` away, and keeps one of the two.
__device__ __forceinline__ uint64_t compare_exchange(uint64_t key, uint32_t stride, bool keep_smaller) {
  const uint64_t other = __shfl_xor_sync(all_lanes, key, stride);
  return (other < key) == keep_smaller ? other : key;
}

// Sorts the keys of a warp's lanes: the greatest to lane 0, the smallest to lane 31.
__device__ __forceinline__ uint64_t sort_descending(uint64_t key) {
  const uint32_t lane = lane_index();
  uint32_t run = 2;  // runs of alternating order make the next longer run bitonic
  uint32_t stride = 1;
#pragma unroll 1  // each step waits for a shuffle: 15 copies of it are hardly faster, and take much longer to compile
  while (run <= warp_size) {
    const bool descending = (lane & run) == 0;
    const bool first = (lane & stride) == 0;
    key = compare_exchange(key, stride, first != descending);
    stride /= 2;
    if (stride == 0) {
      stride = run;
      run *= 2;
    }
  }
  return key;
}

}  // namespace ivf_flat
