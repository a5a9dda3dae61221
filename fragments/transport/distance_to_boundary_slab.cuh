// SPDX-License-Identifier: Apache-2.0
// Layers: the faces across x.
#pragma once

#include "distance_along_axis.cuh"

namespace transport {

__device__ boundary distance_to_boundary(const problem& problem, const particle& particle) {
  return distance_along_axis(particle.position.x, particle.direction.x, particle.cell.x, problem.cell_size.x, 0);
}

}  // namespace transport
