// SPDX-License-Identifier: Apache-2.0
// Sorting pairs by list, step 1: where the distances of each pair are written.
#pragma once

#include "scan_lists.cuh"

namespace ivf_flat {

// The distances of a query are a row: those of its first probe, of its second, …, 32 for each group of a list. Writes
// where in the row those of each probe begin, and how long the row is. Launch with a thread per query.
__global__ void measure_rows(const uint32_t* __restrict__ probes, const uint32_t* __restrict__ list_sizes,
                             uint32_t* __restrict__ offsets, uint32_t* __restrict__ lengths, uint32_t num_queries,
                             uint32_t num_probes) {
  const uint32_t query = blockIdx.x * blockDim.x + threadIdx.x;
  if (query >= num_queries) { return; }
  const uint64_t first = static_cast<uint64_t>(query) * num_probes;
  uint32_t length = 0;
#pragma unroll 1
  for (uint64_t pair = first; pair < first + num_probes; ++pair) {
    const uint32_t list = __ldg(probes + pair);
    offsets[pair] = length;
    length += list == no_list ? 0 : (__ldg(list_sizes + list) + warp_size - 1) / warp_size * warp_size;
  }
  lengths[query] = length;
}

}  // namespace ivf_flat
