// SPDX-License-Identifier: Apache-2.0
// A particle with less than a quarter of the full weight gets half of it, or ends.
#pragma once

#include "roulette.cuh"

namespace transport {

__device__ int roulette(particle& particle) {
  constexpr weight_t threshold = full_weight / 4;
  constexpr weight_t survivor = full_weight / 2;
  const weight_t before = particle.weight;
  if (before >= threshold) { return 0; }
  const float chance = static_cast<float>(before) * (1.0f / survivor);  // a power of two: exact
  particle.weight = uniform(particle.random) < chance ? survivor : 0;
  return static_cast<int>(particle.weight) - static_cast<int>(before);
}

}  // namespace transport
