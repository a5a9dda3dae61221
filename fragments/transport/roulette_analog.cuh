// SPDX-License-Identifier: Apache-2.0
// A particle is whole or gone: there is nothing to decide.
#pragma once

#include "roulette.cuh"

namespace transport {

__device__ int roulette(particle& /*particle*/) { return 0; }

}  // namespace transport
