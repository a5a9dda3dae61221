// SPDX-License-Identifier: Apache-2.0
// Interface of the group `get_cross_sections`.
#pragma once

#include "problem.cuh"

namespace transport {

// What a kernel does not use, such as the cosine where scattering is isotropic, is not loaded once it is linked with
// link-time optimisation; a separately compiled function has to load it for every flight.
//
// Aligned, and by that padded, to be unlike `vector`. nvJitLink 12.9 takes structures of equal members for one and the
// same, and for sm_100 and later then leaves a call to a function in another fragment that returns one by value.
struct alignas(16) cross_sections {
  float total;        // macroscopic, 1/cm; 0 in a void
  float absorption;   // of it; the rest scatters
  float mean_cosine;  // of the angle by which scattering turns a particle
};

extern __device__ cross_sections get_cross_sections(const problem& problem, uint32_t material, uint32_t group);

}  // namespace transport
