// SPDX-License-Identifier: Apache-2.0
// Each row times a window: a filter of frequencies, or one of time. `info` points to the window's `length` real factors,
// the same for all rows: double for double, float for float and __half.
#pragma once

#include "storage.cuh"

namespace fft {

template <typename Stored>
__device__ __forceinline__ void store_window(Stored* data, unsigned int row, unsigned int index, unsigned int length,
                                             computed_t<Stored> value, void* info) {
  narrow(data[offset(row, length, index)], scaled(static_cast<const real_t<Stored>*>(info)[index], value));
}

}  // namespace fft
