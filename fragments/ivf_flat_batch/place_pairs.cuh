// SPDX-License-Identifier: Apache-2.0
// Sorting pairs by list, step 4: the pairs in the order of their lists.
#pragma once

#include "scan_lists.cuh"

namespace ivf_flat {

// Writes the pairs, numbered query × probes + probe, list by list; `next` holds where the pairs of each list begin, and
// then where they end. The order within a list is any, and no distance depends on it. Launch with a thread per pair.
__global__ void place_pairs(const uint32_t* __restrict__ probes, uint32_t* __restrict__ next,
                            uint32_t* __restrict__ pairs, uint32_t num_pairs) {
  const uint32_t pair = blockIdx.x * blockDim.x + threadIdx.x;
  if (pair >= num_pairs) { return; }
  const uint32_t list = __ldg(probes + pair);
  if (list != no_list) { pairs[atomicAdd(next + list, 1u)] = pair; }
}

}  // namespace ivf_flat
