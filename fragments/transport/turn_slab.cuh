// SPDX-License-Identifier: Apache-2.0
// Only the direction's component across the layers matters.
#pragma once

#include "elementary.cuh"
#include "turn.cuh"

namespace transport {

__device__ void turn(float cosine, particle& particle) {
  const float along = particle.direction.x;
  const float across = sqrtf(fmaxf(fmaf(-along, along, 1.0f), 0.0f));
  const float sine = sqrtf(fmaxf(fmaf(-cosine, cosine, 1.0f), 0.0f));
  const azimuth around = unit_circle(uniform(particle.random));
  const float turned = fmaf(cosine, along, sine * across * around.cosine);
  particle.direction.x = fminf(fmaxf(turned, -1.0f), 1.0f);
}

}  // namespace transport
