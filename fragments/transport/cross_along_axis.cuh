// SPDX-License-Identifier: Apache-2.0
// From cell to cell along one axis.
#pragma once

#include "types.cuh"

namespace transport {

__device__ __forceinline__ bool cross_along_axis(bool high, uint32_t cells, float size, uint32_t& cell,
                                                 float& position) {
  // Exactly on the face, so that errors do not accumulate.
  position = static_cast<float>(cell + high) * size;
  const bool inside = high ? cell + 1 < cells : cell > 0;
  if (inside) { cell = high ? cell + 1 : cell - 1; }
  return inside;
}

}  // namespace transport
