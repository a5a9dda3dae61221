// SPDX-License-Identifier: Apache-2.0
// All directions are equally likely.
#pragma once

#include "sample_cosine.cuh"

namespace transport {

__device__ float sample_cosine(const cross_sections& /*cross_sections*/, random_stream& random) {
  return fmaf(2.0f, uniform(random), -1.0f);
}

}  // namespace transport
