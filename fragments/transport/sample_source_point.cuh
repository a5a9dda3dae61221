// SPDX-License-Identifier: Apache-2.0
// An isotropic point source.
#pragma once

#include "isotropic_direction.cuh"
#include "sample_source.cuh"

namespace transport {

__device__ void sample_source(const problem& problem, particle& particle) {
  particle.position = problem.source_position;
  particle.direction = isotropic_direction(particle.random);
  particle.group = problem.source_group;
}

}  // namespace transport
