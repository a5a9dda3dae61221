// SPDX-License-Identifier: Apache-2.0
// Interface of the group `locate`.
#pragma once

#include "particle.cuh"
#include "problem.cuh"

namespace transport {

// Finds the cell that a particle's position lies in: at birth only, since afterwards cells are counted. A position
// outside the grid, by rounding or by mistake, gets the nearest cell.
extern __device__ void locate(const problem& problem, particle& particle);

}  // namespace transport
