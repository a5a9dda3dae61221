// SPDX-License-Identifier: Apache-2.0
// Estimates the flux as the length of all tracks: every flight counts, even in a void.
#pragma once

#include "add_to_flux.cuh"
#include "tally.cuh"

namespace transport {

__device__ void score_flight(const problem& problem, const domain& domain, const particle& particle, float length) {
  add_to_flux(problem, domain, particle, length);
}

__device__ void score_collision(const problem& /*problem*/, const domain& /*domain*/, const particle& /*particle*/,
                                const cross_sections& /*cross_sections*/) {}

}  // namespace transport
