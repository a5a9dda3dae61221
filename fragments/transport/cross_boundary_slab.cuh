// SPDX-License-Identifier: Apache-2.0
// Layers along x.
#pragma once

#include "cross_along_axis.cuh"
#include "cross_boundary.cuh"

namespace transport {

__device__ bool cross_boundary(const problem& problem, uint32_t face, particle& particle) {
  return cross_along_axis(face & 1, problem.cells_x, problem.cell_size.x, particle.cell.x, particle.position.x);
}

}  // namespace transport
