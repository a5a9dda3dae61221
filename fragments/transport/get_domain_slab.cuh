// SPDX-License-Identifier: Apache-2.0
// Layers along x.
#pragma once

#include "get_domain.cuh"

namespace transport {

__device__ domain get_domain(const problem& problem, const particle& particle) {
  const uint32_t cell = particle.cell.x;
  return {cell, __ldg(problem.materials + cell)};
}

}  // namespace transport
