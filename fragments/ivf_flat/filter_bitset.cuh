// SPDX-License-Identifier: Apache-2.0
// One bit per id, the same for all queries: a vector passes if its bit is set. `filter_data` points to uint32_t words,
// enough for the greatest id; id i is bit i % 32, counted from the lowest, of word i / 32.
#pragma once

#include "filter.cuh"

namespace ivf_flat {

__device__ bool filter(uint32_t /*query*/, int64_t id, const void* filter_data) {
  const uint64_t bit = static_cast<uint64_t>(id);  // never negative; unsigned makes / and % a shift and a mask
  const uint32_t word = __ldg(static_cast<const uint32_t*>(filter_data) + bit / 32);
  return (word >> (bit % 32)) & 1u;
}

}  // namespace ivf_flat
