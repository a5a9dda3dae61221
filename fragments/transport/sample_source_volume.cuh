// SPDX-License-Identifier: Apache-2.0
// An isotropic source, uniform over the whole grid.
#pragma once

#include "isotropic_direction.cuh"
#include "sample_source.cuh"

namespace transport {

__device__ void sample_source(const problem& problem, particle& particle) {
  // One statement per number, because the order in which arguments are evaluated is up to the compiler.
  const float x = uniform(particle.random) * (static_cast<float>(problem.cells_x) * problem.cell_size.x);
  const float y = uniform(particle.random) * (static_cast<float>(problem.cells_y) * problem.cell_size.y);
  const float z = uniform(particle.random) * (static_cast<float>(problem.cells_z) * problem.cell_size.z);
  particle.position = {x, y, z};
  particle.direction = isotropic_direction(particle.random);
  particle.group = problem.source_group;
}

}  // namespace transport
