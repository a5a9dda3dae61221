// SPDX-License-Identifier: Apache-2.0
// Cells are layers along x.
#pragma once

#include "cell_of.cuh"
#include "locate.cuh"

namespace transport {

__device__ void locate(const problem& problem, particle& particle) {
  particle.cell = {cell_of(particle.position.x, problem.cell_size.x, problem.cells_x), 0, 0};
}

}  // namespace transport
