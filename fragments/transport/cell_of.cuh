// SPDX-License-Identifier: Apache-2.0
// The cell along one axis.
#pragma once

#include "types.cuh"

namespace transport {

// Compared as floats: converting a value out of range to an integer would be undefined.
__device__ __forceinline__ uint32_t cell_of(float coordinate, float size, uint32_t cells) {
  const float place = coordinate / size;
  if (!(place > 0.0f)) { return 0; }
  return place < static_cast<float>(cells) ? static_cast<uint32_t>(place) : cells - 1;
}

}  // namespace transport
