// SPDX-License-Identifier: Apache-2.0
// Every collision absorbs the expected share. Histories are longer, and the variance is smaller.
#pragma once

#include "absorb.cuh"

namespace transport {

__device__ weight_t absorb(const cross_sections& cross_sections, particle& particle) {
  const float share = cross_sections.absorption / cross_sections.total;
  const weight_t part = __float2uint_rn(static_cast<float>(particle.weight) * share);
  const weight_t absorbed = part < particle.weight ? part : particle.weight;
  particle.weight -= absorbed;
  return absorbed;
}

}  // namespace transport
