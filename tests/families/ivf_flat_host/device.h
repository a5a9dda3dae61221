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
#include <memory>
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
  std::unique_ptr<char[]> stack;
  bool ended = false;
  const barrier* at = nullptr;  // that it waits at, for the end of this round
  uint64_t round = 0;

  bool waits() const { return at != nullptr && at->round == round; }
};

inline std::vector<thread> threads;
inline std::vector<warp> warps;
inline barrier block;
inline ucontext_t scheduler;
inline std::function<void()> body;

inline void open(barrier& at) {
  if (at.waiting > 0 && at.waiting == at.alive) {
    at.waiting = 0;
    ++at.round;
  }
}

inline void wait(barrier& at) {
  const place own = threadIdx;
  thread& me = threads[own.x];
  me.at = &at;
  me.round = at.round;
  ++at.waiting;
  open(at);
  if (me.waits()) { swapcontext(&me.context, &scheduler); }
  threadIdx = own;
}

inline void leave(barrier& at) {
  --at.alive;
  open(at);
}

inline void run() {
  body();
  threads[threadIdx.x].ended = true;
  leave(warps[threadIdx.x / 32].arrival);
  leave(block);
  swapcontext(&threads[threadIdx.x].context, &scheduler);
}

// Hands a value to all lanes of the warp, and returns what `read` makes of all of theirs.
template <typename T, typename Read>
auto exchange(T value, Read read) {
  warp& own = warps[threadIdx.x / 32];
  static_assert(sizeof(T) <= sizeof(uint64_t), "a value is at most 8 bytes");
  std::memcpy(own.values + threadIdx.x % 32, &value, sizeof(T));
  wait(own.arrival);
  const auto result = read([&](unsigned lane) {
    T of_lane;
    std::memcpy(&of_lane, own.values + lane % 32, sizeof(T));
    return of_lane;
  });
  wait(own.arrival);
  return result;
}

// The lanes for which `holds` is true.
template <typename Holds>
unsigned lanes(Holds holds) {
  unsigned found = 0;
  for (unsigned lane = 0; lane < 32; ++lane) { found |= (holds(lane) ? 1u : 0u) << lane; }
  return found;
}

inline void run_block(unsigned count) {
  threads = std::vector<thread>(count);
  warps = std::vector<warp>((count + 31) / 32);
  block = {count, 0, 0};
  for (unsigned i = 0; i < count; ++i) {
    warps[i / 32].arrival.alive++;
    thread& made = threads[i];
    made.stack.reset(new char[stack_bytes]);
    getcontext(&made.context);
    made.context.uc_stack.ss_sp = made.stack.get();
    made.context.uc_stack.ss_size = stack_bytes;
    made.context.uc_link = nullptr;
    makecontext(&made.context, run, 0);
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (unsigned i = 0; i < count; ++i) {
      if (threads[i].ended || threads[i].waits()) { continue; }
      moved = true;
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
  return host::exchange(value, [=](auto of) { return of(lane); });
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, unsigned mask) {
  const unsigned own = threadIdx.x % 32;
  return host::exchange(value, [=](auto of) { return of(own ^ mask); });
}
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned offset) {
  const unsigned own = threadIdx.x % 32;
  return host::exchange(value, [=](auto of) { return of(own < offset ? own : own - offset); });
}
inline unsigned __ballot_sync(unsigned, bool vote) { return host::exchange(vote, [](auto of) { return host::lanes(of); }); }
inline unsigned __match_any_sync(unsigned, unsigned value) {
  return host::exchange(value, [=](auto of) { return host::lanes([&](unsigned lane) { return of(lane) == value; }); });
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
