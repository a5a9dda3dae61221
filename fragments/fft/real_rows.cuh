// SPDX-License-Identifier: Apache-2.0
// Rows of real elements, from memory to registers and back. Two neighbours in a row are one complex point; the group
// reads and writes single elements through its buffer, so that the threads of a warp access neighbours.
#pragma once

#include "fft_load.cuh"
#include "fft_store.cuh"
#include "storage.cuh"
#include "worker.cuh"

namespace fft {

// Real element `lane + i * group` of the group's buffer of complex points.
template <typename Complex, unsigned int Size>
__device__ __forceinline__ decltype(Complex::x)& real_element(const worker<Complex, Size>& me, unsigned int i) {
  Complex& pair = me.element(me.lane / 2, i * (me.group / 2));
  return me.lane % 2 == 0 ? pair.x : pair.y;
}

// x[i] = elements 2 n and 2 n + 1 of this thread's row of 2 Size, n = place + threads * i; zero where there is no row.
template <typename Stored, typename Complex, unsigned int Size>
__device__ __forceinline__ void load_real_row(const worker<Complex, Size>& me, const Stored* input,
                                              Complex (&x)[shape<Size>::points], void* info) {
#pragma unroll
  for (unsigned int i = 0; i < 2 * me.points; ++i) {
    const unsigned int element = me.lane + i * me.group;
    const unsigned int row = me.first_row + element / (2 * Size);
    real_element(me, i) = row < me.batch ? fft_load(input, row, element % (2 * Size), 2 * Size, info) : 0;
  }
  me.wait();
#pragma unroll
  for (unsigned int i = 0; i < me.points; ++i) { x[i] = me.point(me.place(), i * me.threads); }
}

// The reverse. The buffer may still be read afterwards.
template <typename Stored, typename Complex, unsigned int Size>
__device__ __forceinline__ void store_real_row(const worker<Complex, Size>& me, Stored* output,
                                               const Complex (&x)[shape<Size>::points], void* info) {
  me.wait();
#pragma unroll
  for (unsigned int i = 0; i < me.points; ++i) { me.point(me.place(), i * me.threads) = x[i]; }
  me.wait();
#pragma unroll
  for (unsigned int i = 0; i < 2 * me.points; ++i) {
    const unsigned int element = me.lane + i * me.group;
    const unsigned int row = me.first_row + element / (2 * Size);
    if (row < me.batch) {
      fft_store(output, row, element % (2 * Size), 2 * Size, real_element(me, i), info);
    }
  }
}

}  // namespace fft
