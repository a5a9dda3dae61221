// SPDX-License-Identifier: Apache-2.0
// What kernels use of CUDA, on a CPU: the threads of a block are coroutines of one thread, which run until they wait for
// others at a barrier or at an exchange of a warp. Blocks run one after the other.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__
#define __launch_bounds__(...)

struct uint4 { uint32_t x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
struct place { unsigned x = 0; };
inline place threadIdx, blockIdx, blockDim, gridDim;

namespace host {

constexpr unsigned stack_bytes = 128 << 10;

// Waits until all threads that have not ended yet have come.
struct barrier {
  unsigned alive = 0, waiting = 0;
  uint64_t round = 0;
};

struct warp {
  barrier arrival;
  uint64_t values[32];
};

struct thread {
  ucontext_t context;
  std::vector<char> stack;
  bool ended = false;
};

inline std::vector<thread> threads;
inline std::vector<warp> warps;
inline barrier block;
inline ucontext_t scheduler;
inline bool moved;  // whether anything has happened since the scheduler looked
inline std::function<void()> body;

inline void open(barrier& at) {
  if (at.waiting > 0 && at.waiting == at.alive) {
    at.waiting = 0;
    ++at.round;
    moved = true;
  }
}

inline void wait(barrier& at) {
  const uint64_t round = at.round;
  const place own = threadIdx;
  ++at.waiting;
  moved = true;
  open(at);
  while (at.round == round) { swapcontext(&threads[own.x].context, &scheduler); }
  threadIdx = own;
}

inline void leave(barrier& at) {
  --at.alive;
  open(at);
}

inline void run() {
  body();
  threads[threadIdx.x].ended = true;
  moved = true;
  leave(warps[threadIdx.x / 32].arrival);
  leave(block);
  swapcontext(&threads[threadIdx.x].context, &scheduler);
}

// Hands a value to all lanes of the warp, and returns that of one of them.
template <typename T, typename Choose>
T exchange(T value, Choose choose) {
  warp& own = warps[threadIdx.x / 32];
  static_assert(sizeof(T) <= sizeof(uint64_t), "a value is at most 8 bytes");
  std::memcpy(own.values + threadIdx.x % 32, &value, sizeof(T));
  wait(own.arrival);
  T chosen;
  std::memcpy(&chosen, own.values + choose(threadIdx.x % 32) % 32, sizeof(T));
  wait(own.arrival);
  return chosen;
}

inline void run_block(unsigned count) {
  threads = std::vector<thread>(count);
  warps = std::vector<warp>((count + 31) / 32);
  block = {count, 0, 0};
  for (unsigned i = 0; i < count; ++i) {
    warps[i / 32].arrival.alive++;
    thread& made = threads[i];
    made.stack.resize(stack_bytes);
    getcontext(&made.context);
    made.context.uc_stack.ss_sp = made.stack.data();
    made.context.uc_stack.ss_size = made.stack.size();
    made.context.uc_link = nullptr;
    makecontext(&made.context, run, 0);
  }
  for (moved = true; moved;) {
    moved = false;
    for (unsigned i = 0; i < count; ++i) {
      if (threads[i].ended) { continue; }
      threadIdx.x = i;
      swapcontext(&scheduler, &threads[i].context);
    }
  }
  for (const thread& each : threads) {
    if (!each.ended) {
      std::fprintf(stderr, "threads wait for ever in block %u\n", blockIdx.x);
      std::abort();
    }
  }
}

inline void launch(unsigned grid, unsigned threads_per_block, std::function<void()> kernel) {
  body = std::move(kernel);
  gridDim.x = grid;
  blockDim.x = threads_per_block;
  for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) { run_block(threads_per_block); }
}

}  // namespace host

inline void __syncthreads() { host::wait(host::block); }
inline void __syncwarp() { host::wait(host::warps[threadIdx.x / 32].arrival); }
[[noreturn]] inline void __trap() { std::abort(); }

template <typename T>
T __ldg(const T* from) { return *from; }
template <typename T>
T __shfl_sync(unsigned, T value, unsigned lane) {
  return host::exchange(value, [=](unsigned) { return lane; });
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, unsigned mask) {
  return host::exchange(value, [=](unsigned own) { return own ^ mask; });
}
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned offset) {
  return host::exchange(value, [=](unsigned own) { return own < offset ? own : own - offset; });
}
inline unsigned __ballot_sync(unsigned, bool vote) {
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    votes |= host::exchange(vote ? 1u : 0u, [=](unsigned) { return lane; }) << lane;
  }
  return votes;
}
inline unsigned __match_any_sync(unsigned, unsigned value) {
  unsigned same = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    same |= (host::exchange(value, [=](unsigned) { return lane; }) == value ? 1u : 0u) << lane;
  }
  return same;
}
inline unsigned __popc(unsigned bits) { return __builtin_popcount(bits); }
inline unsigned atomicAdd(unsigned* at, unsigned value) {
  const unsigned before = *at;
  *at += value;
  return before;
}
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
