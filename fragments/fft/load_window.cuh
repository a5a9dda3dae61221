// SPDX-License-Identifier: Apache-2.0
// Each row times a window. `info` points to the window's `length` real factors, the same for all rows: double for
// double, float for float and __half.
#pragma once

#include "storage.cuh"

namespace fft {

template <typename Stored>
__device__ __forceinline__ computed_t<Stored> load_window(const Stored* data, unsigned int row, unsigned int index,
                                                          unsigned int length, void* info) {
  return scaled(static_cast<const real_t<Stored>*>(info)[index], widen(data[offset(row, length, index)]));
}

}  // namespace fft
