// SPDX-License-Identifier: Apache-2.0
// The element times a factor. `info` points to the factor: one double for double, one float for float and __half.
#pragma once

#include "storage.cuh"

namespace fft {

template <typename Stored>
__device__ __forceinline__ computed_t<Stored> load_scale(const Stored* data, unsigned int row, unsigned int index,
                                                         unsigned int length, void* info) {
  return scaled(*static_cast<const real_t<Stored>*>(info), widen(data[offset(row, length, index)]));
}

}  // namespace fft
