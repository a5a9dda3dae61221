// SPDX-License-Identifier: Apache-2.0
// Interface of the group `sample_group`.
#pragma once

#include "particle.cuh"
#include "problem.cuh"

namespace transport {

// Returns the energy group of a particle after scattering.
extern __device__ uint32_t sample_group(const problem& problem, uint32_t material, uint32_t group,
                                        random_stream& random);

}  // namespace transport
