// SPDX-License-Identifier: Apache-2.0
// Interface of the group `turn`.
#pragma once

#include "particle.cuh"

namespace transport {

// Turns a particle by the angle with this cosine, at a random azimuth.
extern __device__ void turn(float cosine, particle& particle);

}  // namespace transport
