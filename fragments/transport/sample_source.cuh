// SPDX-License-Identifier: Apache-2.0
// Interface of the group `sample_source`.
#pragma once

#include "particle.cuh"
#include "problem.cuh"

namespace transport {

// Starts a particle: sets its position, direction and group.
extern __device__ void sample_source(const problem& problem, particle& particle);

}  // namespace transport
