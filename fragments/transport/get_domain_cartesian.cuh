// SPDX-License-Identifier: Apache-2.0
// A grid in x, y and z.
#pragma once

#include "get_domain.cuh"

namespace transport {

__device__ domain get_domain(const problem& problem, const particle& particle) {
  const uint32_t row = particle.cell.z * problem.cells_y + particle.cell.y;
  const uint32_t cell = row * problem.cells_x + particle.cell.x;
  return {cell, __ldg(problem.materials + cell)};
}

}  // namespace transport
