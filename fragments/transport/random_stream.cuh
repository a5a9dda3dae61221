// SPDX-License-Identifier: Apache-2.0
// A particle's stream of uniform numbers, four at a time from the generator.
#pragma once

#include "random_block.cuh"

namespace transport {

struct random_stream {
  wide_t seed;
  wide_t particle;
  wide_t number;       // of the next block
  random_words words;  // the unused words of the last one come first
  uint32_t left;       // words
};

__device__ __forceinline__ random_stream stream_of(wide_t seed, wide_t particle) {
  return {seed, particle, 0, {0, 0, 0, 0}, 0};
}

// The next number, uniform in (0, 1): an odd multiple of 2^-24, exact as a float, so never 0 and never 1.
__device__ __forceinline__ float uniform(random_stream& stream) {
  if (stream.left == 0) {
    stream.words = random_block(stream.seed, stream.particle, stream.number);
    ++stream.number;
    stream.left = 4;
  }
  const uint32_t word = stream.words.a;
  // Moving the words up keeps all four in registers; an index would put them into local memory.
  stream.words = {stream.words.b, stream.words.c, stream.words.d, 0};
  --stream.left;
  return static_cast<float>(2 * (word >> 9) + 1) * 0x1p-24f;
}

}  // namespace transport
