// SPDX-License-Identifier: Apache-2.0
// How the threads of a block share its transforms.
#pragma once

#include "complex.cuh"

namespace fft {

// A transform of Size complex points is the work of Size / points threads. The more points a thread holds, the fewer
// passes there are between which points are exchanged; but with 32 fewer threads have room, which pays where they save a
// pass of several warps. 8 points of 64 take as many passes as 16, and fewer registers. Threads that exchange points form
// a group: the whole warp where a transform needs less than one, so that a warp-wide barrier is enough.
//
//   launch   grid = ceil(batch / (block / threads)), in one dimension
//            block = max(128, threads)
//            block / threads * length * sizeof(complex) bytes of dynamic shared memory, where complex is what is computed
//            with, and length that of a complex row: Size, or Size + 1 for real transforms. 8 to 64 KB in float, 16 to
//            128 KB in double, less where a thread holds fewer than 8 points. Devices of compute capability 8.6, 8.9 and
//            12.x have 99 KB, and so no complex transform of 8192 in double.
template <unsigned int Size>
struct shape {
  // Enumerators, because static members would be symbols of the fragment.
  enum : unsigned int {
    points = Size < 16 ? Size : Size == 64 ? 8 : Size < 4096 ? 16 : 32,  // of a thread
    threads = Size / points,                                             // of a transform
    group = threads < 32 ? 32 : threads,                                 // threads that share a buffer
    block = threads < 128 ? 128 : threads                                // threads of a block
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
  Complex* buffer;         // group / threads rows of `length` elements, in shared memory

  __device__ __forceinline__ explicit worker(unsigned int rows, unsigned int length = Size)
      : batch(rows), lane(threadIdx.x % group) {
    extern __shared__ double2 shared[];  // double2, for the alignment of every type
    const unsigned int number = threadIdx.x / group;
    first_row = (blockIdx.x * (block / group) + number) * (group / threads);
    buffer = reinterpret_cast<Complex*>(shared) + number * (group / threads * length);
  }

  // Of this thread's transform: the row, and the thread's place in it. The thread holds points place + threads * i.
  __device__ __forceinline__ unsigned int row() const { return first_row + lane / threads; }
  __device__ __forceinline__ unsigned int place() const { return lane % threads; }

  // Point `base + offset` of this thread's transform, in the buffer. The offset is known to the compiler, and no bit is
  // set in both numbers.
  __device__ __forceinline__ Complex& point(unsigned int base, unsigned int offset) const {
    return spread_point(lane / threads * Size + base, offset);
  }
  // The same in plain order, which is as good where 16 threads access neighbours.
  __device__ __forceinline__ Complex& plain_point(unsigned int base, unsigned int offset) const {
    return (buffer + (lane / threads * Size + base))[offset];
  }

  // In the order that is good where the threads of a transform access neighbours: point k = place + threads * i of this
  // thread's transform, its mirror image Size - k, and point `base + offset` of all the group's.
  __device__ __forceinline__ Complex& own_point(unsigned int i) const {
    return plain ? plain_point(place(), i * threads) : point(place(), i * threads);
  }
  __device__ __forceinline__ Complex& mirrored_point(unsigned int i) const {
    const unsigned int base = threads - place(), offset = (points - 1 - i) * threads;
    return plain ? plain_point(base, offset) : point(base + offset, 0);
  }
  __device__ __forceinline__ Complex& element(unsigned int base, unsigned int offset) const {
    return plain ? (buffer + base)[offset] : spread_point(base, offset);
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
  // Here memory has 8 banks of 16 bytes. Bits 4 to 7 of a point's number change its bank, such that 8 threads that each
  // write a pair of neighbours, and 16 that read neighbours, in one row or several, access all banks. Nothing is padded,
  // so that a transform of 8192 takes 64 KB of float2.
  enum : unsigned int { bank = 16 / sizeof(Complex), banks = 7 * bank, plain = threads % 16 == 0 };
  static __device__ __forceinline__ unsigned int slot(unsigned int i) {
    return i ^ (i / 16 ^ i / 128 % 2 * 7) % 8 * bank;
  }
  // No bit is carried, so the bank of the offset costs an instruction, and the rest of it none.
  __device__ __forceinline__ Complex& spread_point(unsigned int base, unsigned int offset) const {
    return (buffer + (slot(base) ^ (slot(offset) & banks)))[slot(offset) & ~banks];
  }
};

}  // namespace fft
