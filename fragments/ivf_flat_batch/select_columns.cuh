// SPDX-License-Identifier: Apache-2.0
// The best columns of each row of a matrix.
#pragma once

#include "select_row.cuh"

namespace ivf_flat {

// Writes, for each row of `products`, the `count` columns for which products + terms is best, the best first;
// 0xffffffff where there is none that is a number. `terms` has one for each column, or is null.
//
// With the products of queries and centres by −2 and the squares of the centres as terms, these are the nearest centres:
// |q − c|² = |q|² − 2 q·c + |c|², of which the first is the same for all centres of a query.
//
// Launch with a warp per row, and 8 × max(64, Capacity) bytes of dynamic shared memory for each warp of a block.
template <int Capacity, order Order>
__global__ void select_columns(const float* __restrict__ products, const float* __restrict__ terms,
                               uint32_t* __restrict__ columns, uint32_t num_rows, uint32_t num_columns,
                               uint32_t count) {
  const uint32_t row = blockIdx.x * (blockDim.x / warp_size) + threadIdx.x / warp_size;
  if (row >= num_rows) { return; }
  const float* const own = products + static_cast<uint64_t>(row) * num_columns;
  uint32_t* const best = columns + static_cast<uint64_t>(row) * count;
  extern __shared__ uint4 dynamic_shared[];
  select_row<Capacity, Order>(
      num_columns, count, 1, reinterpret_cast<uint64_t*>(dynamic_shared),
      [=](uint32_t i) { return __ldg(own + i) + (terms == nullptr ? 0.0f : __ldg(terms + i)); },
      [=](uint32_t rank, uint64_t key) { best[rank] = key_slot(key); });  // of no_key all bits are set
}

}  // namespace ivf_flat
