// SPDX-License-Identifier: Apache-2.0
// Interface of the group `get_domain`.
#pragma once

#include "particle.cuh"
#include "problem.cuh"

namespace transport {

struct domain {
  uint32_t cell;  // its number in the grid, x fastest
  uint32_t material;
};

// Returns the cell that a particle is in, and its material.
extern __device__ domain get_domain(const problem& problem, const particle& particle);

}  // namespace transport
