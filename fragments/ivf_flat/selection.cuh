// SPDX-License-Identifier: Apache-2.0
// The candidates that a warp finds: the best are kept in a queue or, for capacity 0, all are written.
#pragma once

#include "warp_queue.cuh"

namespace ivf_flat {

// A warp's queue with a buffer. Once the queue is full, few candidates are good enough for it. Because sorting one key
// takes as long as sorting 32, candidates are collected and sorted 32 at a time.
template <int Capacity>
class selection {
 public:
  // Keys that a warp needs in shared memory: 31 that wait and 32 that come, or a queue that is handed on.
  static constexpr int shared_keys = warp_queue<Capacity>::width < 64 ? 64 : warp_queue<Capacity>::width;

  __device__ __forceinline__ explicit selection(uint64_t* shared) : buffer_(shared) {}

  // Offers one key per lane; no_key means none.
  __device__ __forceinline__ void offer(uint64_t key) {
    const bool good = key < last_;
    const uint32_t lanes = __ballot_sync(all_lanes, good);
    if (lanes == 0) { return; }
    const uint32_t before = __popc(lanes & ((1u << lane_index()) - 1));
    if (good) { buffer_[waiting_ + before] = key; }
    waiting_ += __popc(lanes);
    __syncwarp();
    if (waiting_ >= warp_size) {
      take(warp_size);
      const uint64_t rest = buffer_[warp_size + lane_index()];
      waiting_ -= warp_size;
      __syncwarp();
      buffer_[lane_index()] = rest;
      __syncwarp();
    }
  }

  // Returns the queue of everything that was offered.
  __device__ __forceinline__ warp_queue<Capacity>& finish() {
    if (waiting_ > 0) { take(waiting_); }
    waiting_ = 0;
    return queue_;
  }

 private:
  __device__ __forceinline__ void take(uint32_t count) {
    queue_.take(lane_index() < count ? buffer_[lane_index()] : no_key);
    last_ = queue_.last();
  }

  warp_queue<Capacity> queue_;
  uint64_t last_ = no_key;
  uint64_t* buffer_;
  uint32_t waiting_ = 0;  // the same in all lanes; below 32 between calls
};

}  // namespace ivf_flat
