// SPDX-License-Identifier: Apache-2.0
// Boxes.
#pragma once

#include "cross_along_axis.cuh"
#include "cross_boundary.cuh"

namespace transport {

__device__ bool cross_boundary(const problem& problem, uint32_t face, particle& particle) {
  const bool high = face & 1;
  switch (face >> 1) {
    case 0:
      return cross_along_axis(high, problem.cells_x, problem.cell_size.x, particle.cell.x, particle.position.x);
    case 1:
      return cross_along_axis(high, problem.cells_y, problem.cell_size.y, particle.cell.y, particle.position.y);
    default:
      return cross_along_axis(high, problem.cells_z, problem.cell_size.z, particle.cell.z, particle.position.z);
  }
}

}  // namespace transport
