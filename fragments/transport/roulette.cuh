// SPDX-License-Identifier: Apache-2.0
// Interface of the group `roulette`.
#pragma once

#include "particle.cuh"

namespace transport {

// Ends histories that are no longer worth following without changing any expected value: a survivor takes the weight
// of those that do not. Returns by how much the particle's weight grew; negative if it was taken.
extern __device__ int roulette(particle& particle);

}  // namespace transport
