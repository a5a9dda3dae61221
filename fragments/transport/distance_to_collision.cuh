// SPDX-License-Identifier: Apache-2.0
// Interface of the group `distance_to_collision`.
#pragma once

#include "get_cross_sections.cuh"
#include "random_stream.cuh"

namespace transport {

// Returns the distance to the next collision in cm, assuming the same material everywhere; infinity in a void.
extern __device__ float distance_to_collision(const cross_sections& cross_sections, random_stream& random);

}  // namespace transport
