// SPDX-License-Identifier: Apache-2.0
// The row unchanged. `info` is not read and may be null.
#pragma once

#include "vectors.cuh"

namespace segment_reduce {

template <typename Stored, int V>
__device__ __forceinline__ void store_identity(Stored* output, unsigned long long row, unsigned int column,
                                               unsigned int width, const float (&value)[V], void* /*info*/) {
  store_vector<V>(output + row * width + column, value);
}

}  // namespace segment_reduce
