// SPDX-License-Identifier: Apache-2.0
// How the threads of a block share its transforms.
#pragma once

#include "complex.cuh"

namespace fft {

// A transform of Size complex points is the work of Size / 16 threads that hold 16 points each. Threads that exchange
// points form a group: the whole warp where a transform needs less than one, so that a warp-wide barrier is enough.
//
//   launch   grid = ceil(batch / (block / threads)), in one dimension
//            block = max(128, threads)
//            block * points * sizeof(complex) bytes of dynamic shared memory, where complex is what is computed with:
//            16 to 64 KB in float, 32 to 128 KB in double, less where a thread holds fewer than 16 points. Devices of
//            compute capability 8.6, 8.9 and 12.x have 99 KB, and so no complex transform of 8192 in double.
template <unsigned int Size>
struct shape {
  // Enumerators, because static members would be symbols of the fragment.
  enum : unsigned int {
    points = Size < 16 ? Size : 16,           // of a thread
    threads = Size / points,                  // of a transform
    group = threads < 32 ? 32 : threads,      // threads that share a buffer
    block = threads < 128 ? 128 : threads     // threads of a block
  };
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

  // Point `base + offset` of this thread's transform, and point `base + offset` of all the group's, in the buffer. The
  // offset is known to the compiler, and no bit is set in both numbers.
  __device__ __forceinline__ Complex& point(unsigned int base, unsigned int offset) const {
    return buffer[slot(lane / threads * Size + base, offset)];
  }
  __device__ __forceinline__ Complex& element(unsigned int base, unsigned int offset) const {
    return buffer[slot(base, offset)];
  }

  // Waits until all reads and writes of the buffer by the group's threads are done.
  static __device__ __forceinline__ void wait() {
    if constexpr (group == 32) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

 private:
  // Points whose numbers differ by a power of two up to 16 are in different banks, 16 at a time; and nothing is padded, so
  // that a transform of 8192 takes 64 KB of float2. Bits 4 to 7 are added to bits 0 to 3, without carry: so the slot of a
  // sum follows from those of its parts, the offset costs one instruction, and what is above bit 7 of it costs none.
  static __device__ __forceinline__ unsigned int slot(unsigned int i) { return i ^ (i / 16 % 16); }
  static __device__ __forceinline__ unsigned int slot(unsigned int base, unsigned int offset) {
    return (slot(base) ^ slot(offset % 256)) + offset / 256 * 256;
  }
};

}  // namespace fft
