// SPDX-License-Identifier: Apache-2.0
// The element times a factor, such as 1 / size. `info` points to the factor: one double for double, one float for float
// and __half.
#pragma once

#include "storage.cuh"

namespace fft {

template <typename Stored>
__device__ __forceinline__ void store_scale(Stored* data, unsigned int row, unsigned int index, unsigned int length,
                                            computed_t<Stored> value, void* info) {
  narrow(data[offset(row, length, index)], scaled(*static_cast<const real_t<Stored>*>(info), value));
}

}  // namespace fft
