// SPDX-License-Identifier: Apache-2.0
// Analog absorption: all or nothing, as in nature.
#pragma once

#include "absorb.cuh"

namespace transport {

__device__ weight_t absorb(const cross_sections& cross_sections, particle& particle) {
  if (uniform(particle.random) * cross_sections.total >= cross_sections.absorption) { return 0; }
  const weight_t absorbed = particle.weight;
  particle.weight = 0;
  return absorbed;
}

}  // namespace transport
