// SPDX-License-Identifier: Apache-2.0
// There is only one group.
#pragma once

#include "sample_group.cuh"

namespace transport {

__device__ uint32_t sample_group(const problem& /*problem*/, uint32_t /*material*/, uint32_t group,
                                 random_stream& /*random*/) {
  return group;
}

}  // namespace transport
