// SPDX-License-Identifier: Apache-2.0
// Sorting vectors by list, step 1: how many of each part of the vectors belong to each list.
#pragma once

#include "scan_lists.cuh"

namespace ivf_flat {

// The sort is stable, so that sums over a list's vectors are the same every time. For that the vectors are divided into
// parts, and counts[list × parts + part] counts those of a list in a part. `begin_lists` sums them up, and `place_rows`
// places those of each part.
//
// Launch with a thread per row; `counts` starts from zeros.
__global__ void count_rows(const uint32_t* __restrict__ labels, uint32_t* __restrict__ counts, uint32_t num_rows,
                           uint32_t rows_per_part, uint32_t parts) {
  const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= num_rows) { return; }
  const uint32_t list = __ldg(labels + row);
  if (list != no_list) { atomicAdd(counts + static_cast<uint64_t>(list) * parts + row / rows_per_part, 1u); }
}

}  // namespace ivf_flat
