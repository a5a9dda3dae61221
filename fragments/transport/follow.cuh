// SPDX-License-Identifier: Apache-2.0
// One history, from birth to its end.
#pragma once

#include "absorb.cuh"
#include "apply_boundary.cuh"
#include "cross_boundary.cuh"
#include "distance_to_boundary.cuh"
#include "distance_to_collision.cuh"
#include "get_cross_sections.cuh"
#include "get_domain.cuh"
#include "ledger.cuh"
#include "locate.cuh"
#include "roulette.cuh"
#include "sample_cosine.cuh"
#include "sample_group.cuh"
#include "sample_source.cuh"
#include "tally.cuh"
#include "turn.cuh"

namespace transport {

__device__ __forceinline__ void fly(float distance, particle& particle) {
  particle.position.x = fmaf(particle.direction.x, distance, particle.position.x);
  particle.position.y = fmaf(particle.direction.y, distance, particle.position.y);
  particle.position.z = fmaf(particle.direction.z, distance, particle.position.z);
}

// Absorption, then roulette, then scattering; the weight is 0 if the history ends.
__device__ __forceinline__ void collide(const problem& problem, const domain& here, const cross_sections& sections,
                                        particle& particle, ledger& ledger) {
  ++ledger.collisions;
  score_collision(problem, here, particle, sections);
  ledger.absorbed += absorb(sections, particle);
  if (particle.weight == 0) { return; }
  const int change = roulette(particle);
  ledger.gained += change > 0 ? change : 0;
  ledger.lost += change < 0 ? -change : 0;
  if (particle.weight == 0) { return; }
  const float cosine = sample_cosine(sections, particle.random);
  particle.group = sample_group(problem, here.material, particle.group, particle.random);
  turn(cosine, particle);
}

__device__ __forceinline__ void follow(const problem& problem, uint32_t max_flights, particle& particle,
                                       ledger& ledger) {
  sample_source(problem, particle);
  locate(problem, particle);
  uint32_t flight = 0;
  for (; particle.weight != 0; ++flight) {
    const domain here = get_domain(problem, particle);
    const cross_sections sections = get_cross_sections(problem, here.material, particle.group);
    const float collision = distance_to_collision(sections, particle.random);
    const boundary edge = distance_to_boundary(problem, particle);
    const bool collides = collision < edge.distance;
    const float distance = collides ? collision : edge.distance;
    // A particle that flies along the layers of a void forever, or a history that does not end.
    if (flight == max_flights || !(distance < infinity())) {
      ledger.cut += particle.weight;
      break;
    }
    fly(distance, particle);
    score_flight(problem, here, particle, distance);
    if (collides) {
      collide(problem, here, sections, particle, ledger);
    } else if (!cross_boundary(problem, edge.face, particle) && !apply_boundary(problem, edge.face, particle)) {
      ledger.leaked[edge.face] += particle.weight;
      particle.weight = 0;
    }
  }
  ledger.flights += flight;
}

}  // namespace transport
