// SPDX-License-Identifier: Apache-2.0
// Rows that are shorter in memory than the transform, followed by zeros. `info` points to one unsigned int: how many
// elements a row has in memory, where rows follow each other without gaps.
#pragma once

#include "storage.cuh"

namespace fft {

template <typename Stored>
__device__ __forceinline__ computed_t<Stored> load_pad(const Stored* data, unsigned int row, unsigned int index,
                                                       unsigned int /*length*/, void* info) {
  const unsigned int stored = *static_cast<const unsigned int*>(info);
  if (index >= stored) { return {}; }
  return widen(data[offset(row, stored, index)]);
}

}  // namespace fft
