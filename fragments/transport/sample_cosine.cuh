// SPDX-License-Identifier: Apache-2.0
// Interface of the group `sample_cosine`.
#pragma once

#include "get_cross_sections.cuh"
#include "random_stream.cuh"

namespace transport {

// Returns the cosine of the scattering angle.
extern __device__ float sample_cosine(const cross_sections& cross_sections, random_stream& random);

}  // namespace transport
