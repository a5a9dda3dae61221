// SPDX-License-Identifier: Apache-2.0
// Interface of the group `roulette`.
#pragma once

#include "particle.cuh"

namespace transport {

// Ends histories that are no longer worth following, without changing expected values: survivors take over the weight
// of the others. Returns the change of the particle's weight; negative if the history ends.
extern __device__ int roulette(particle& particle);

}  // namespace transport
