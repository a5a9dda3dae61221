// SPDX-License-Identifier: Apache-2.0
// The element unchanged. `info` is not read and may be null.
#pragma once

#include "storage.cuh"

namespace fft {

template <typename Stored>
__device__ __forceinline__ computed_t<Stored> load_identity(const Stored* data, unsigned int row, unsigned int index,
                                                            unsigned int length, void* /*info*/) {
  return widen(data[offset(row, length, index)]);
}

}  // namespace fft
