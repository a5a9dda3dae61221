// SPDX-License-Identifier: Apache-2.0
// Particles always have their full weight, so there is nothing to decide.
#pragma once

#include "roulette.cuh"

namespace transport {

__device__ int roulette(particle& /*particle*/) { return 0; }

}  // namespace transport
