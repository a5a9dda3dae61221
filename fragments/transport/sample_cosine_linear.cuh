// SPDX-License-Identifier: Apache-2.0
// Linearly anisotropic: the density of the cosine is (1 + a cosine) / 2 with a = 3 mean_cosine, |a| <= 1.
#pragma once

#include "sample_cosine.cuh"

namespace transport {

__device__ float sample_cosine(const cross_sections& cross_sections, random_stream& random) {
  // The root of a c^2 + 2 c + 2 - a - 4 u = 0, in the form that does not divide by a, which may be 0.
  const float a = 3.0f * cross_sections.mean_cosine;
  const float u4 = 4.0f * uniform(random);
  const float root = sqrtf(fmaf(a, u4, (1.0f - a) * (1.0f - a)));
  const float cosine = (u4 - 2.0f + a) / (1.0f + root);
  return fminf(fmaxf(cosine, -1.0f), 1.0f);
}

}  // namespace transport
