// SPDX-License-Identifier: Apache-2.0
// Interface of the group `cross_boundary`.
#pragma once

#include "particle.cuh"
#include "problem.cuh"

namespace transport {

// Moves a particle that has reached a face of its cell into the next cell. Returns false if there is none: the particle
// then stays in its cell, on a face of the grid.
extern __device__ bool cross_boundary(const problem& problem, uint32_t face, particle& particle);

}  // namespace transport
