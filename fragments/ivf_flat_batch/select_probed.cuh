// SPDX-License-Identifier: Apache-2.0
// The best of the distances that `tiled_scan` has written.
#pragma once

#include "results.cuh"
#include "scan_lists.cuh"
#include "select_row.cuh"

namespace ivf_flat {

// Returns the probe whose distances include the one at `place` of a row: the last that begins there or before.
__device__ __forceinline__ uint32_t find_probe(const uint32_t* offsets, uint32_t num_probes, uint32_t place) {
  uint32_t low = 0;
#pragma unroll 1
  for (uint32_t high = num_probes; high - low > 1;) {
    const uint32_t middle = low + (high - low) / 2;
    if (__ldg(offsets + middle) <= place) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Writes, for each query, the `count` best distances of its row, the best first, and whose they are; ∞ (−∞ for
// order::descending) and −1 where there are fewer candidates. `offsets` and `lengths` are those of `measure_rows`.
//
// Launch with a block per query, of 32 × 2ⁿ threads, and 8 × max(64, Capacity) bytes of dynamic shared memory for each
// of its warps.
template <int Capacity, order Order>
__global__ void select_probed(const float* __restrict__ distances, const uint32_t* __restrict__ probes,
                              const uint32_t* __restrict__ offsets, const uint32_t* __restrict__ lengths,
                              const uint32_t* __restrict__ list_groups, const int64_t* __restrict__ ids,
                              float* __restrict__ best, int64_t* __restrict__ neighbours, uint32_t row_length,
                              uint32_t num_probes, uint32_t count) {
  const uint64_t query = blockIdx.x;
  const float* const row = distances + query * row_length;
  const uint32_t* const own_probes = probes + query * num_probes;
  const uint32_t* const own_offsets = offsets + query * num_probes;
  extern __shared__ uint4 dynamic_shared[];
  select_row<Capacity, Order>(
      __ldg(lengths + query), count, blockDim.x / warp_size, reinterpret_cast<uint64_t*>(dynamic_shared),
      [=](uint32_t i) { return __ldg(row + i); },
      [=](uint32_t rank, uint64_t key) {
        uint32_t slot = 0;
        if (key != no_key) {
          const uint32_t probe = find_probe(own_offsets, num_probes, key_slot(key));
          slot = __ldg(list_groups + __ldg(own_probes + probe)) * warp_size + key_slot(key) - __ldg(own_offsets + probe);
        }
        const uint64_t place = query * count + rank;
        write_result<Order>(best + place, neighbours + place, key != no_key, key_distance<Order>(key), slot, ids);
      });
}

}  // namespace ivf_flat
