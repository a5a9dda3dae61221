// SPDX-License-Identifier: Apache-2.0
// Who does what: how the threads of a block share its transforms.
#pragma once

#include "complex.cuh"

namespace fft {

// A transform of Size complex points is the work of Size / 16 threads that hold 16 points each. Threads that exchange
// points form a group: the whole warp where a transform needs less than one, so that a warp-wide barrier is enough.
//
//   launch   grid = ceil(batch / (block / threads)), in one dimension
//            block = max(128, threads)
//            block * points * sizeof(Complex) bytes of dynamic shared memory
template <unsigned int Size>
struct shape {
  static constexpr unsigned int points = Size < 16 ? Size : 16;                // of a thread
  static constexpr unsigned int threads = Size / points;                       // of a transform
  static constexpr unsigned int group = threads < 32 ? 32 : threads;           // threads that share a buffer
  static constexpr unsigned int block = threads < 128 ? 128 : threads;         // threads of a block
};

// One thread's place, and its group's buffer.
template <typename Complex, unsigned int Size>
struct worker : shape<Size> {
  using shape<Size>::points;
  using shape<Size>::threads;
  using shape<Size>::group;
  using shape<Size>::block;

  unsigned int batch;
  unsigned int lane;       // within the group
  unsigned int first_row;  // of the group
  Complex* buffer;         // points * group elements, in shared memory

  __device__ __forceinline__ explicit worker(unsigned int rows) : batch(rows), lane(threadIdx.x % group) {
    extern __shared__ double2 shared[];  // double2, for the alignment of every type
    const unsigned int number = threadIdx.x / group;
    first_row = (blockIdx.x * (block / group) + number) * (group / threads);
    buffer = reinterpret_cast<Complex*>(shared) + number * (group * points);
  }

  // Of this thread's transform: the row, and the thread's place in it. The thread holds points place + threads * i.
  __device__ __forceinline__ unsigned int row() const { return first_row + lane / threads; }
  __device__ __forceinline__ unsigned int place() const { return lane % threads; }

  // Where the buffer holds a point of this thread's transform. Points whose numbers differ by a power of two up to 16
  // are then in different banks, 16 at a time; nothing is padded, so that a transform of 8192 is 64 KB of float2.
  __device__ __forceinline__ Complex& point(unsigned int i) const {
    return buffer[slot(lane / threads * Size + i)];
  }
  static __device__ __forceinline__ unsigned int slot(unsigned int i) { return i ^ (i / 16 % 16); }

  // All that the group's threads wrote to the buffer, and have read from it, has happened.
  static __device__ __forceinline__ void wait() {
    if constexpr (group == 32) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
};

}  // namespace fft
