// SPDX-License-Identifier: Apache-2.0
// All faces are mirrors: an infinite lattice of the grid and its images.
#pragma once

#include "apply_boundary.cuh"
#include "reflect.cuh"

namespace transport {

__device__ bool apply_boundary(const problem& /*problem*/, uint32_t face, particle& particle) {
  reflect(face, particle);
  return true;
}

}  // namespace transport
