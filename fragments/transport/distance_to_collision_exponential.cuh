// SPDX-License-Identifier: Apache-2.0
// Memoryless collisions: exponentially distributed distances. At most 17 mean free paths, because a uniform number
// is at least 2^-24.
#pragma once

#include "distance_to_collision.cuh"
#include "elementary.cuh"

namespace transport {

__device__ float distance_to_collision(const cross_sections& cross_sections, random_stream& random) {
  return minus_logarithm(uniform(random)) / cross_sections.total;
}

}  // namespace transport
