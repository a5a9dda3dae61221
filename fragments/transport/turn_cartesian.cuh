// SPDX-License-Identifier: Apache-2.0
// In the basis that a direction spans (Duff and others, «Building an orthonormal basis, revisited», JCGT 6, 2017),
// which, unlike polar angles, has no pole.
#pragma once

#include "elementary.cuh"
#include "turn.cuh"

namespace transport {

__device__ void turn(float cosine, particle& particle) {
  const vector d = particle.direction;
  const float sign = d.z < 0.0f ? -1.0f : 1.0f;
  const float a = -1.0f / (sign + d.z);
  const float b = d.x * d.y * a;
  const vector first = {fmaf(sign * d.x * d.x, a, 1.0f), sign * b, -sign * d.x};
  const vector second = {b, fmaf(d.y * d.y, a, sign), -d.y};

  const float sine = sqrtf(fmaxf(fmaf(-cosine, cosine, 1.0f), 0.0f));
  const azimuth around = unit_circle(uniform(particle.random));
  const float p = sine * around.cosine;
  const float q = sine * around.sine;
  const vector turned = {fmaf(p, first.x, fmaf(q, second.x, cosine * d.x)),
                         fmaf(p, first.y, fmaf(q, second.y, cosine * d.y)),
                         fmaf(p, first.z, fmaf(q, second.z, cosine * d.z))};
  // Without this, rounding errors of the length would accumulate over many collisions.
  const float inverse = 1.0f / sqrtf(fmaf(turned.x, turned.x, fmaf(turned.y, turned.y, turned.z * turned.z)));
  particle.direction = {turned.x * inverse, turned.y * inverse, turned.z * inverse};
}

}  // namespace transport
