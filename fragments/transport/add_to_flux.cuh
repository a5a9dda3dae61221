// SPDX-License-Identifier: Apache-2.0
// Adding to the flux of a cell.
#pragma once

#include "get_domain.cuh"

namespace transport {

// In fixed point: integers add up to the same sum in every order, floats do not. Rounded to nearest, without bias.
__device__ __forceinline__ void add_to_flux(const problem& problem, const domain& domain, const particle& particle,
                                            float length) {
  const float score = static_cast<float>(particle.weight) * length * problem.flux_scale;
  const wide_t place = static_cast<wide_t>(particle.group) * problem.cells + domain.cell;
  atomicAdd(problem.flux + place, __float2ull_rn(score));
}

}  // namespace transport
