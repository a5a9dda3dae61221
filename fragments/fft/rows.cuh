// SPDX-License-Identifier: Apache-2.0
// Rows of complex elements, from memory to registers and back, by `fft_load` and `fft_store`.
#pragma once

#include "fft_load.cuh"
#include "fft_store.cuh"
#include "storage.cuh"
#include "worker.cuh"

namespace fft {

// A warp's access is as good as its parts are long: where the threads of one transform hold less than 32 neighbouring
// bytes, which is what memory gives at a time, the group reads and writes its rows as one, through the buffer.
template <typename Stored, unsigned int Size>
constexpr __device__ bool staged() {
  return shape<Size>::threads * sizeof(Stored) < 32;
}

// The rows of the group into its buffer: the first Size elements of each, whose rows have `length`.
template <typename Stored, typename Complex, unsigned int Size>
__device__ __forceinline__ void stage_in(const worker<Complex, Size>& me, const Stored* input, unsigned int length,
                                         void* info) {
#pragma unroll
  for (unsigned int i = 0; i < me.points; ++i) {
    const unsigned int element = me.lane + i * me.group;
    const unsigned int row = me.first_row + element / Size;
    Complex value{};
    if (row < me.batch) { value = fft_load(input, row, element % Size, length, info); }
    me.element(me.lane, i * me.group) = value;
  }
}

// x[i] = element `place + threads * i` of this thread's row; zero where there is no such row.
template <typename Stored, typename Complex, unsigned int Size>
__device__ __forceinline__ void load_row(const worker<Complex, Size>& me, const Stored* input,
                                         Complex (&x)[shape<Size>::points], void* info) {
  if constexpr (staged<Stored, Size>()) {
    stage_in(me, input, Size, info);
    me.wait();
#pragma unroll
    for (unsigned int i = 0; i < me.points; ++i) { x[i] = me.point(me.place(), i * me.threads); }
  } else {
#pragma unroll
    for (unsigned int i = 0; i < me.points; ++i) { x[i] = {}; }
    if (me.row() < me.batch) {
#pragma unroll
      for (unsigned int i = 0; i < me.points; ++i) {
        x[i] = fft_load(input, me.row(), me.place() + i * me.threads, Size, info);
      }
    }
  }
}

// The other way: the first Size elements of this thread's row, in rows of `length`. Busy: the buffer may still be read.
template <bool Busy, typename Stored, typename Complex, unsigned int Size>
__device__ __forceinline__ void store_row(const worker<Complex, Size>& me, Stored* output, unsigned int length,
                                          const Complex (&x)[shape<Size>::points], void* info) {
  if constexpr (staged<Stored, Size>()) {
    if constexpr (Busy) { me.wait(); }
#pragma unroll
    for (unsigned int i = 0; i < me.points; ++i) { me.point(me.place(), i * me.threads) = x[i]; }
    me.wait();
#pragma unroll
    for (unsigned int i = 0; i < me.points; ++i) {
      const unsigned int element = me.lane + i * me.group;
      const unsigned int row = me.first_row + element / Size;
      if (row < me.batch) { fft_store(output, row, element % Size, length, me.element(me.lane, i * me.group), info); }
    }
  } else if (me.row() < me.batch) {
#pragma unroll
    for (unsigned int i = 0; i < me.points; ++i) {
      fft_store(output, me.row(), me.place() + i * me.threads, length, x[i], info);
    }
  }
}

}  // namespace fft
