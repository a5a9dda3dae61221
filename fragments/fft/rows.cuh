// SPDX-License-Identifier: Apache-2.0
// Rows of complex elements, from memory to registers and back, by `fft_load` and `fft_store`.
#pragma once

#include "fft_load.cuh"
#include "fft_store.cuh"
#include "storage.cuh"
#include "worker.cuh"

namespace fft {

// A warp's access is as good as its parts are long: where few threads have a transform, the group reads and writes its
// rows as one, through the buffer.
template <unsigned int Size>
constexpr __device__ bool staged() {
  return shape<Size>::threads < 16;
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

// x[i] = element `place + threads * i` of this thread's row. Without staging the row has to exist; with it, x is zero
// otherwise.
template <typename Stored, typename Complex, unsigned int Size>
__device__ __forceinline__ void load_row(const worker<Complex, Size>& me, const Stored* input,
                                         Complex (&x)[shape<Size>::points], void* info) {
  if constexpr (staged<Size>()) {
    stage_in(me, input, Size, info);
    me.wait();
#pragma unroll
    for (unsigned int i = 0; i < me.points; ++i) { x[i] = me.own_point(i); }
  } else {
#pragma unroll
    for (unsigned int i = 0; i < me.points; ++i) {
      x[i] = fft_load(input, me.row(), me.place() + i * me.threads, Size, info);
    }
  }
}

// The row from registers. The buffer may still be read before.
template <typename Stored, typename Complex, unsigned int Size>
__device__ __forceinline__ void store_row(const worker<Complex, Size>& me, Stored* output,
                                          const Complex (&x)[shape<Size>::points], void* info) {
  if constexpr (staged<Size>()) {
    me.wait();
#pragma unroll
    for (unsigned int i = 0; i < me.points; ++i) { me.own_point(i) = x[i]; }
    me.wait();
#pragma unroll
    for (unsigned int i = 0; i < me.points; ++i) {
      const unsigned int element = me.lane + i * me.group;
      const unsigned int row = me.first_row + element / Size;
      if (row < me.batch) { fft_store(output, row, element % Size, Size, me.element(me.lane, i * me.group), info); }
    }
  } else {
#pragma unroll
    for (unsigned int i = 0; i < me.points; ++i) {
      fft_store(output, me.row(), me.place() + i * me.threads, Size, x[i], info);
    }
  }
}

}  // namespace fft
