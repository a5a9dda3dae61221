// SPDX-License-Identifier: Apache-2.0
// The best candidates that a warp has found, sorted, spread over the registers of its lanes.
#pragma once

#include "bitonic.cuh"
#include "key.cuh"

namespace ivf_flat {

// Capacity keys, ascending: key i is in register i / 32 of lane i % 32. Capacity is a power of two; below 32 the other
// lanes hold no key. All functions are called by all lanes of the warp together.
template <int Capacity>
class warp_queue {
 public:
  static constexpr int width = Capacity < 32 ? 32 : Capacity;
  static constexpr int registers = width / 32;

  __device__ __forceinline__ warp_queue() {
#pragma unroll
    for (int r = 0; r < registers; ++r) { keys_[r] = no_key; }
  }

  // Returns the last key of the queue, in all lanes: only smaller keys can still enter it.
  __device__ __forceinline__ uint64_t last() const {
    return __shfl_sync(all_lanes, keys_[registers - 1], (Capacity - 1) % warp_size);
  }

  // Merges the keys of all lanes, one each, in any order.
  __device__ __forceinline__ void take(uint64_t key) {
    // Compares the last 32 keys of the queue with the new keys in reverse order, and keeps the smaller of each pair.
    keys_[registers - 1] = smaller(keys_[registers - 1], sort_descending(key));
    restore();
  }

  // Merges another warp's queue, from where it was stored.
  __device__ __forceinline__ void take(const uint64_t* stored) {
#pragma unroll
    for (int r = 0; r < registers; ++r) {
      keys_[r] = smaller(keys_[r], stored[width - 1 - (r * warp_size + lane_index())]);
    }
    restore();
  }

  // Writes `width` keys.
  __device__ __forceinline__ void store(uint64_t* stored) const {
#pragma unroll
    for (int r = 0; r < registers; ++r) { stored[r * warp_size + lane_index()] = keys_[r]; }
  }

  // The key in a register of this lane.
  __device__ __forceinline__ uint64_t key(int r) const { return keys_[r]; }

 private:
  // An ascending sequence of which a part was replaced by the pairwise smaller of a descending one is bitonic, and
  // holds the smallest of both: merging sorts it.
  __device__ __forceinline__ void restore() {
#pragma unroll
    for (int stride = registers / 2; stride > 0; stride /= 2) {
#pragma unroll
      for (int r = 0; r < registers; ++r) {
        if ((r & stride) == 0) {
          const uint64_t a = keys_[r];
          const uint64_t b = keys_[r + stride];
          keys_[r] = b < a ? b : a;
          keys_[r + stride] = b < a ? a : b;
        }
      }
    }
#pragma unroll 1  // as in sort_descending()
    for (uint32_t stride = warp_size / 2; stride > 0; stride /= 2) {
#pragma unroll
      for (int r = 0; r < registers; ++r) {
        keys_[r] = compare_exchange(keys_[r], stride, (lane_index() & stride) == 0);
      }
    }
    if (Capacity < 32 && lane_index() >= Capacity) { keys_[0] = no_key; }
  }

  uint64_t keys_[registers];
};

}  // namespace ivf_flat
