// SPDX-License-Identifier: Apache-2.0
// The element unchanged. `info` is not read and may be null.
#pragma once

#include "vectors.cuh"

namespace segment_reduce {

template <typename Stored, int V>
__device__ __forceinline__ void load_identity(const Stored* values, unsigned long long element, unsigned int column,
                                              unsigned int width, void* /*info*/, float (&value)[V]) {
  load_vector<V>(values, element * width + column, value);
}

}  // namespace segment_reduce
