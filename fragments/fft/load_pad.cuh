// SPDX-License-Identifier: Apache-2.0
// Rows that are shorter in memory than the transform, followed by zeros. `info` points to one unsigned int: how many
// elements a row has in memory, at least 1, where rows follow each other without gaps. Nothing may write there while the
// kernel runs.
#pragma once

#include "storage.cuh"

namespace fft {

template <typename Stored>
__device__ __forceinline__ computed_t<Stored> load_pad(const Stored* data, unsigned int row, unsigned int index,
                                                       unsigned int /*length*/, void* info) {
  const unsigned int stored = __ldg(static_cast<const unsigned int*>(info));
  // No branch around the access: it would make each element wait for the previous one.
  const computed_t<Stored> value = widen(data[offset(row, stored, index < stored ? index : 0)]);
  return index < stored ? value : computed_t<Stored>{};
}

}  // namespace fft
