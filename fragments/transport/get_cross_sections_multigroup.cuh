// SPDX-License-Identifier: Apache-2.0
// Tables over material and group of energy.
#pragma once

#include "get_cross_sections.cuh"

namespace transport {

__device__ cross_sections get_cross_sections(const problem& problem, uint32_t material, uint32_t group) {
  const uint32_t place = material * problem.num_groups + group;
  return {__ldg(problem.total + place), __ldg(problem.absorption + place), __ldg(problem.mean_cosine + place)};
}

}  // namespace transport
