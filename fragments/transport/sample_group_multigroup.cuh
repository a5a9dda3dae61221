// SPDX-License-Identifier: Apache-2.0
// Samples the distribution over groups, which is tabulated for each material and group before the collision.
#pragma once

#include "sample_group.cuh"

namespace transport {

__device__ uint32_t sample_group(const problem& problem, uint32_t material, uint32_t group, random_stream& random) {
  const wide_t row = static_cast<wide_t>(material) * problem.num_groups + group;
  const float* distribution = problem.group_distribution + row * problem.num_groups;
  const float u = uniform(random);
  uint32_t next = 0;
  // The last group takes the rest, so rounding at the end of the distribution does not matter.
  while (next + 1 < problem.num_groups && u >= __ldg(distribution + next)) { ++next; }
  return next;
}

}  // namespace transport
