// SPDX-License-Identifier: Apache-2.0
// Candidates as integers: comparing two keys tells which candidate is better, in either order.
#pragma once

#include "types.cuh"

namespace ivf_flat {

// Whether the k smallest or the k greatest distances are wanted.
enum class order { ascending, descending };

// No candidate: worse than any.
constexpr uint64_t no_key = ~static_cast<uint64_t>(0);

// The distance above, the slot below: of equal distances the one that is stored first is the better one, so that the
// answer does not depend on which warp came first. Of the smallest distance the key is the smallest; of the greatest
// for order::descending.
template <order Order>
__device__ __forceinline__ uint64_t make_key(float distance, uint32_t slot) {
  const uint32_t bits = __float_as_uint(distance + 0.0f);  // adding 0 turns -0 into +0
  // Floats compare like integers of sign and magnitude; this makes them compare like unsigned integers.
  const uint32_t ordered = bits ^ (bits & 0x80000000u ? 0xffffffffu : 0x80000000u);
  const uint32_t upper = Order == order::ascending ? ordered : ~ordered;
  return static_cast<uint64_t>(upper) << 32 | slot;
}

template <order Order>
__device__ __forceinline__ float key_distance(uint64_t key) {
  const uint32_t upper = static_cast<uint32_t>(key >> 32);
  const uint32_t ordered = Order == order::ascending ? upper : ~upper;
  return __uint_as_float(ordered ^ (ordered & 0x80000000u ? 0x80000000u : 0xffffffffu));
}

__device__ __forceinline__ uint32_t key_slot(uint64_t key) { return static_cast<uint32_t>(key); }

// The distance that is written where there is no candidate: further than all, in the order at hand.
template <order Order>
__device__ __forceinline__ float no_distance() {
  return __uint_as_float(Order == order::ascending ? 0x7f800000u : 0xff800000u);
}

}  // namespace ivf_flat
