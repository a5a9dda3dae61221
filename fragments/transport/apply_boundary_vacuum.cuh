// SPDX-License-Identifier: Apache-2.0
// Every particle that reaches a face leaks.
#pragma once

#include "apply_boundary.cuh"

namespace transport {

__device__ bool apply_boundary(const problem& /*problem*/, uint32_t /*face*/, particle& /*particle*/) {
  return false;
}

}  // namespace transport
