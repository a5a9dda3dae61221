// SPDX-License-Identifier: Apache-2.0
// Boxes: the nearest of three faces. If several are equally near, the first axis wins; the others follow at distance 0.
#pragma once

#include "distance_along_axis.cuh"

namespace transport {

__device__ boundary distance_to_boundary(const problem& problem, const particle& particle) {
  const vector at = particle.position;
  const vector along = particle.direction;
  const boundary x = distance_along_axis(at.x, along.x, particle.cell.x, problem.cell_size.x, 0);
  const boundary y = distance_along_axis(at.y, along.y, particle.cell.y, problem.cell_size.y, 1);
  const boundary z = distance_along_axis(at.z, along.z, particle.cell.z, problem.cell_size.z, 2);
  const boundary nearer = y.distance < x.distance ? y : x;
  return z.distance < nearer.distance ? z : nearer;
}

}  // namespace transport
