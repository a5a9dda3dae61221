// SPDX-License-Identifier: Apache-2.0
// A broad beam: enters through the low x face, anywhere on it, along x.
#pragma once

#include "sample_source.cuh"

namespace transport {

__device__ void sample_source(const problem& problem, particle& particle) {
  const float height = static_cast<float>(problem.cells_y) * problem.cell_size.y;
  const float depth = static_cast<float>(problem.cells_z) * problem.cell_size.z;
  const float y = uniform(particle.random) * height;
  const float z = uniform(particle.random) * depth;
  particle.position = {0.0f, y, z};
  particle.direction = {1.0f, 0.0f, 0.0f};
  particle.group = problem.source_group;
}

}  // namespace transport
