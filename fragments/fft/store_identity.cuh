// SPDX-License-Identifier: Apache-2.0
// The element unchanged, in rows without gaps. `info` is not read and may be null.
#pragma once

#include "storage.cuh"

namespace fft {

template <typename Stored>
__device__ __forceinline__ void store_identity(Stored* data, unsigned int row, unsigned int index, unsigned int length,
                                               computed_t<Stored> value, void* /*info*/) {
  narrow(data[offset(row, length, index)], value);
}

}  // namespace fft
