// SPDX-License-Identifier: Apache-2.0
// The nearest centre of each vector.
#pragma once

#include "key.cuh"
#include "rows.cuh"

namespace ivf_flat {

// Writes, for each row of `products`, the column for which products + terms is smallest, of equal ones the first;
// `otherwise` where no sum is finite. See `select_columns.cuh` for what the products and terms are.
//
// It reads the matrix once, and waits for memory. Launch with a warp per row.
__global__ void label_rows(const float* __restrict__ products, const float* __restrict__ terms,
                           uint32_t* __restrict__ labels, uint32_t num_rows, uint32_t num_columns,
                           uint32_t otherwise) {
  const uint64_t row = row_of_warp();
  if (row >= num_rows) { return; }
  const float* const own = products + row * num_columns;
  const float lowest = __uint_as_float(0xff7fffffu);  // that is finite
  float best = __uint_as_float(0x7f800000u);
  uint32_t at = 0;
#pragma unroll 8
  for (uint32_t c = lane_index(); c < num_columns; c += warp_size) {
    const float value = __ldg(own + c) + __ldg(terms + c);
    if (value < best && value >= lowest) {  // false for a NaN
      best = value;
      at = c;
    }
  }
  uint64_t key = best < __uint_as_float(0x7f800000u) ? make_key<order::ascending>(best, at) : no_key;
#pragma unroll
  for (uint32_t offset = warp_size / 2; offset > 0; offset /= 2) {
    const uint64_t other = __shfl_xor_sync(all_lanes, key, offset);
    key = other < key ? other : key;
  }
  if (lane_index() == 0) { labels[row] = key == no_key ? otherwise : key_slot(key); }
}

}  // namespace ivf_flat
