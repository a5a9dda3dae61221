// SPDX-License-Identifier: Apache-2.0
// Cells are equal boxes.
#pragma once

#include "cell_of.cuh"
#include "locate.cuh"

namespace transport {

__device__ void locate(const problem& problem, particle& particle) {
  particle.cell = {cell_of(particle.position.x, problem.cell_size.x, problem.cells_x),
                   cell_of(particle.position.y, problem.cell_size.y, problem.cells_y),
                   cell_of(particle.position.z, problem.cell_size.z, problem.cells_z)};
}

}  // namespace transport
