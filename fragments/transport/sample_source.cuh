// SPDX-License-Identifier: Apache-2.0
// Interface of the group `sample_source`.
#pragma once

#include "particle.cuh"
#include "problem.cuh"

namespace transport {

// Where and how a particle is born: sets position, direction and group.
extern __device__ void sample_source(const problem& problem, particle& particle);

}  // namespace transport
