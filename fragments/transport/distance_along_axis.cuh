// SPDX-License-Identifier: Apache-2.0
// The distance to the face of a cell along one axis.
#pragma once

#include "distance_to_boundary.cuh"

namespace transport {

__device__ __forceinline__ boundary distance_along_axis(float position, float direction, uint32_t cell, float size,
                                                        uint32_t axis) {
  const uint32_t high = direction > 0.0f;
  const float distance = fmaf(static_cast<float>(cell + high), size, -position) / direction;
  // Rounding may make it negative for a particle on the face; NaN for one that flies along the face.
  return {direction == 0.0f ? infinity() : distance > 0.0f ? distance : 0.0f, 2 * axis + high};
}

}  // namespace transport
