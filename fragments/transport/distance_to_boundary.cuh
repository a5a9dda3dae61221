// SPDX-License-Identifier: Apache-2.0
// Interface of the group `distance_to_boundary`.
#pragma once

#include "particle.cuh"
#include "problem.cuh"

namespace transport {

struct boundary {
  float distance;  // cm, never negative; infinity for a direction that meets no face
  uint32_t face;   // of the cell: low and high in x, in y, in z
};

// Returns the face through which a particle leaves its cell unless it collides first.
extern __device__ boundary distance_to_boundary(const problem& problem, const particle& particle);

}  // namespace transport
