// SPDX-License-Identifier: Apache-2.0
// Interface of the group `absorb`.
#pragma once

#include "get_cross_sections.cuh"
#include "particle.cuh"

namespace transport {

// The weight that a collision absorbs, which is taken from the particle's. What is left scatters.
extern __device__ weight_t absorb(const cross_sections& cross_sections, particle& particle);

}  // namespace transport
