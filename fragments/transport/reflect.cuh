// SPDX-License-Identifier: Apache-2.0
// Reflection at a face.
#pragma once

#include "particle.cuh"

namespace transport {

__device__ __forceinline__ void reflect(uint32_t face, particle& particle) {
  const uint32_t axis = face >> 1;
  vector& direction = particle.direction;
  direction.x = axis == 0 ? -direction.x : direction.x;
  direction.y = axis == 1 ? -direction.y : direction.y;
  direction.z = axis == 2 ? -direction.z : direction.z;
}

}  // namespace transport
