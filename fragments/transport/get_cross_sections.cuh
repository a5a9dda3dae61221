// SPDX-License-Identifier: Apache-2.0
// Interface of the group `get_cross_sections`.
#pragma once

#include "problem.cuh"

namespace transport {

// With link-time optimisation, values that the kernel does not use are not loaded, such as the cosine if scattering is
// isotropic; a separately compiled function has to load them for every flight.
//
// Aligned, and therefore padded, to differ from `vector`. nvJitLink 12.9 confuses structures with the same members: for
// sm_100 and later it then leaves a call to a function of another fragment that returns one of them by value.
struct alignas(16) cross_sections {
  float total;        // macroscopic, 1/cm; 0 in a void
  float absorption;   // of it; the rest scatters
  float mean_cosine;  // of the angle by which scattering turns a particle
};

extern __device__ cross_sections get_cross_sections(const problem& problem, uint32_t material, uint32_t group);

}  // namespace transport
