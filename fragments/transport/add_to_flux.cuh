// SPDX-License-Identifier: Apache-2.0
// Adding to the flux of a cell.
#pragma once

#include "get_domain.cuh"

namespace transport {

// Uses fixed point, because sums of integers, unlike those of floats, do not depend on the order. Rounded to nearest.
__device__ __forceinline__ void add_to_flux(const problem& problem, const domain& domain, const particle& particle,
                                            float length) {
  const float score = static_cast<float>(particle.weight) * length * problem.flux_scale;
  const wide_t place = static_cast<wide_t>(particle.group) * problem.cells + domain.cell;
  atomicAdd(problem.flux + place, __float2ull_rn(score));
}

}  // namespace transport
