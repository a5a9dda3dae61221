// SPDX-License-Identifier: Apache-2.0
// Interface of the group `random_block`: the generator.
#pragma once

#include "types.cuh"

namespace transport {

struct random_words {
  uint32_t a, b, c, d;
};

// Four independent uniformly distributed words: block `number` of the stream of one particle. Counter-based: a pure
// function without state, so that every particle has its own stream, whichever thread follows it and in whatever
// order.
extern __device__ random_words random_block(wide_t seed, wide_t particle, wide_t number);

}  // namespace transport
