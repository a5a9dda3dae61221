// SPDX-License-Identifier: Apache-2.0
// Interface of the group `locate`.
#pragma once

#include "particle.cuh"
#include "problem.cuh"

namespace transport {

// Finds the cell that contains a particle's position. Used at birth only; afterwards cells are counted. For a position
// outside the grid, because of rounding or a mistake, it is the nearest cell.
extern __device__ void locate(const problem& problem, particle& particle);

}  // namespace transport
