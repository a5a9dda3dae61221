// SPDX-License-Identifier: Apache-2.0
// Sorting pairs by list, step 2: how many pairs probe each list.
#pragma once

#include "scan_lists.cuh"

namespace ivf_flat {

// Adds to counts[list] the number of pairs that probe the list. Launch with a thread per pair; `counts` starts from
// zeros.
__global__ void count_lists(const uint32_t* __restrict__ probes, uint32_t* __restrict__ counts, uint32_t num_pairs) {
  const uint32_t pair = blockIdx.x * blockDim.x + threadIdx.x;
  if (pair >= num_pairs) { return; }
  const uint32_t list = __ldg(probes + pair);
  if (list != no_list) { atomicAdd(counts + list, 1u); }
}

}  // namespace ivf_flat
