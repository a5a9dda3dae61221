// SPDX-License-Identifier: Apache-2.0
// Interface of the group `apply_boundary`.
#pragma once

#include "particle.cuh"
#include "problem.cuh"

namespace transport {

// Applies the boundary condition: returns true if the particle is reflected (its direction changes), false if it leaks.
extern __device__ bool apply_boundary(const problem& problem, uint32_t face, particle& particle);

}  // namespace transport
