// SPDX-License-Identifier: Apache-2.0
// Interface of the group `tally`: estimators of the flux in each cell and group. One fragment defines both functions.
#pragma once

#include "get_cross_sections.cuh"
#include "get_domain.cuh"

namespace transport {

// Scores a flight within one cell, with its length in cm, at the particle's weight.
extern __device__ void score_flight(const problem& problem, const domain& domain, const particle& particle,
                                    float length);

// Scores a collision, at the weight before it.
extern __device__ void score_collision(const problem& problem, const domain& domain, const particle& particle,
                                       const cross_sections& cross_sections);

}  // namespace transport
