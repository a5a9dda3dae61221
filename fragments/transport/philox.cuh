// SPDX-License-Identifier: Apache-2.0
// Philox4x32 (Salmon, Moraes, Dror, Shaw, «Parallel random numbers: as easy as 1, 2, 3», SC 2011).
#pragma once

#include "random_block.cuh"

namespace transport {

// `Rounds` is 10 in the paper's recommendation; 7 is the fewest that passes its tests (BigCrush).
template <int Rounds>
__device__ __forceinline__ random_words philox(wide_t key, wide_t counter_high, wide_t counter_low) {
  random_words x = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                    static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < Rounds; ++round) {
    const wide_t first = 0xd2511f53ull * x.a;
    const wide_t second = 0xcd9e8d57ull * x.c;
    x = {static_cast<uint32_t>(second >> 32) ^ x.b ^ key0, static_cast<uint32_t>(second),
         static_cast<uint32_t>(first >> 32) ^ x.d ^ key1, static_cast<uint32_t>(first)};
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return x;
}

}  // namespace transport
