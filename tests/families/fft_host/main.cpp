// SPDX-License-Identifier: Apache-2.0
// The kernels of the family `fft` as they stand, on a CPU: each thread of a block is a thread, and barriers are barriers.
//
//   main KIND DIRECTION DATA_TYPE SIZE BATCH SHARED_MEMORY < rows > results
#include "cuda_fp16.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "c2c_kernel.cuh"
#include "c2r_kernel.cuh"
#include "load_identity.cuh"
#include "r2c_kernel.cuh"
#include "store_identity.cuh"

namespace fft {
double2 shared[8192];  // the dynamic shared memory of the block that runs
}

thread_local place threadIdx, blockIdx;
static std::unique_ptr<std::barrier<>> whole_block;
static std::vector<std::unique_ptr<std::barrier<>>> warps;
void __syncthreads() { whole_block->arrive_and_wait(); }
void __syncwarp() { warps[threadIdx.x / 32]->arrive_and_wait(); }

static std::atomic<size_t> loads, stores;

#define IDENTITY(stored, computed)                                                                                   \
  computed fft_load(const stored* data, unsigned row, unsigned index, unsigned length, void* info) {                \
    ++loads;                                                                                                         \
    return fft::load_identity(data, row, index, length, info);                                                      \
  }                                                                                                                  \
  void fft_store(stored* data, unsigned row, unsigned index, unsigned length, computed value, void* info) {         \
    ++stores;                                                                                                        \
    fft::store_identity(data, row, index, length, value, info);                                                     \
  }
IDENTITY(float2, float2)
IDENTITY(float, float)
IDENTITY(double2, double2)
IDENTITY(double, double)
IDENTITY(__half2, float2)
IDENTITY(__half, float)

struct request {
  std::string kind, direction, data_type;
  unsigned size, batch, shared_memory;
};

// One block after the other, as shape<Points> says.
template <unsigned Points, typename In, typename Out>
static void launch(void (*kernel)(const In*, Out*, unsigned, void*, void*), const request& wanted, unsigned from,
                   unsigned to) {
  using shape = fft::shape<Points>;
  const unsigned batch = wanted.batch;
  auto* const behind = reinterpret_cast<unsigned char*>(fft::shared) + wanted.shared_memory;
  auto* const end = reinterpret_cast<unsigned char*>(fft::shared + std::size(fft::shared));
  std::fill(behind, end, 0xa5);
  std::vector<In> input(static_cast<size_t>(batch) * from);
  std::vector<Out> output(static_cast<size_t>(batch) * to);
  if (std::fread(input.data(), sizeof(In), input.size(), stdin) != input.size()) { std::exit(2); }
  const unsigned rows = shape::block / shape::threads;
  whole_block = std::make_unique<std::barrier<>>(shape::block);
  for (unsigned warp = 0; warp < shape::block / 32; ++warp) { warps.push_back(std::make_unique<std::barrier<>>(32)); }
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < shape::block; ++thread) {
    threads.emplace_back([&, thread] {
      threadIdx.x = thread;
      for (blockIdx.x = 0; blockIdx.x * rows < batch; ++blockIdx.x) {
        kernel(input.data(), output.data(), batch, nullptr, nullptr);
        if ((blockIdx.x + 1) * rows < batch) { __syncthreads(); }
      }
      // In the last block, threads that have no row may leave: barriers no longer wait for them.
      whole_block->arrive_and_drop();
      warps[thread / 32]->arrive_and_drop();
    });
  }
  for (auto& thread : threads) { thread.join(); }
  if (std::any_of(behind, end, [](unsigned char byte) { return byte != 0xa5; })) {
    std::fprintf(stderr, "wrote behind %u bytes of shared memory\n", wanted.shared_memory);
    std::exit(4);
  }
  // Each element once: results that are right have read and written all of them, so their number says it.
  if (loads != input.size() || stores != output.size()) {
    std::fprintf(stderr, "%zu loads of %zu elements, %zu stores of %zu\n", loads.load(), input.size(), stores.load(),
                 output.size());
    std::exit(3);
  }
  std::fwrite(output.data(), sizeof(Out), output.size(), stdout);
}

// Step is the ratio of the sizes that are compiled.
template <typename Real, typename Complex, unsigned Step, unsigned Size = 2>
static void run(const request& wanted) {
  if (wanted.size != Size) {
    if constexpr (Size * Step <= 8192) { run<Real, Complex, Step, Step * Size>(wanted); }
  } else if (wanted.kind == "r2c") {
    launch<Size / 2>(fft::r2c_kernel<Real, Complex, Size>, wanted, Size, Size / 2 + 1);
  } else if (wanted.kind == "c2r") {
    launch<Size / 2>(fft::c2r_kernel<Complex, Real, Size>, wanted, Size / 2 + 1, Size);
  } else if (wanted.direction == "inverse") {
    launch<Size>(fft::c2c_kernel<Complex, true, Size>, wanted, Size, Size);
  } else {
    launch<Size>(fft::c2c_kernel<Complex, false, Size>, wanted, Size, Size);
  }
}

int main(int, char** arguments) {
  const request wanted{arguments[1], arguments[2], arguments[3], static_cast<unsigned>(std::atoi(arguments[4])),
                       static_cast<unsigned>(std::atoi(arguments[5])), static_cast<unsigned>(std::atoi(arguments[6]))};
  if (wanted.data_type == "float") { run<float, float2, 2>(wanted); }
  if (wanted.data_type == "double") { run<double, double2, 16>(wanted); }
  if (wanted.data_type == "__half") { run<__half, __half2, 16>(wanted); }
}
