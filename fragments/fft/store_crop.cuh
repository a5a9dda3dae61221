// SPDX-License-Identifier: Apache-2.0
// Only the first elements of each row: the inverse of `load_pad`. `info` points to one unsigned int: how many elements
// of a row are kept, in memory without gaps between the rows.
#pragma once

#include "storage.cuh"

namespace fft {

template <typename Stored>
__device__ __forceinline__ void store_crop(Stored* data, unsigned int row, unsigned int index, unsigned int /*length*/,
                                           computed_t<Stored> value, void* info) {
  const unsigned int kept = *static_cast<const unsigned int*>(info);
  if (index < kept) { narrow(data[offset(row, kept, index)], value); }
}

}  // namespace fft
