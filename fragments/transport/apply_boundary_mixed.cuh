// SPDX-License-Identifier: Apache-2.0
// Some faces are mirrors, by the bits of `reflective_faces`, and the others let particles out.
#pragma once

#include "apply_boundary.cuh"
#include "reflect.cuh"

namespace transport {

__device__ bool apply_boundary(const problem& problem, uint32_t face, particle& particle) {
  if (!((problem.reflective_faces >> face) & 1u)) { return false; }
  reflect(face, particle);
  return true;
}

}  // namespace transport
