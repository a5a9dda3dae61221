// SPDX-License-Identifier: Apache-2.0
// One bit per row, the same for all queries: a row passes if its bit is set. `filter_data` points to
// ceil(num_rows / 32) words of uint32_t; row r is bit r % 32, counted from the lowest, of word r / 32.
#pragma once

#include "apply_filter.cuh"

namespace search {

template <typename IdxT>
__device__ bool apply_filter(uint32_t /*query*/, IdxT row, const void* filter_data) {
  const uint64_t bit = static_cast<uint64_t>(row);  // never negative; unsigned makes / and % a shift and a mask
  const uint32_t word = __ldg(static_cast<const uint32_t*>(filter_data) + bit / 32);
  return (word >> (bit % 32)) & 1u;
}

}  // namespace search
