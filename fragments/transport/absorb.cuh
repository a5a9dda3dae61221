// SPDX-License-Identifier: Apache-2.0
// Interface of the group `absorb`.
#pragma once

#include "get_cross_sections.cuh"
#include "particle.cuh"

namespace transport {

// Returns the weight that a collision absorbs, and takes it from the particle. The rest scatters.
extern __device__ weight_t absorb(const cross_sections& cross_sections, particle& particle);

}  // namespace transport
