// SPDX-License-Identifier: Apache-2.0
// A direction that is uniform on the unit sphere.
#pragma once

#include "elementary.cuh"
#include "random_stream.cuh"

namespace transport {

__device__ __forceinline__ vector isotropic_direction(random_stream& random) {
  const float cosine = fmaf(2.0f, uniform(random), -1.0f);
  const float sine = sqrtf(fmaf(-cosine, cosine, 1.0f));
  const azimuth around = unit_circle(uniform(random));
  return {cosine, sine * around.cosine, sine * around.sine};
}

}  // namespace transport
