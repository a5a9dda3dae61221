// SPDX-License-Identifier: Apache-2.0
// Rows of real elements, from memory to registers and back. Two neighbours in a row are one complex point. Each thread
// reads both itself: the second one is in the cache then, and so is the rest of a row of 32 bytes, which is what memory
// gives at a time. It does not write both, but the group writes single elements from its buffer, so that the threads of a
// warp write neighbours; and it reads small rows that are longer than that like this too.
#pragma once

#include "rows.cuh"

namespace fft {

// Real element `lane + i * group` of the group's buffer of complex points.
template <typename Complex, unsigned int Size>
__device__ __forceinline__ decltype(Complex::x)& real_element(const worker<Complex, Size>& me, unsigned int i) {
  Complex& pair = me.element(me.lane / 2, i * (me.group / 2));
  return reinterpret_cast<decltype(Complex::x)*>(&pair)[me.lane % 2];
}

// x[i] = elements 2 n and 2 n + 1 of this thread's row of 2 Size, n = place + threads * i; zero, as before, if there is
// no such row.
template <typename Stored, typename Complex, unsigned int Size>
__device__ __forceinline__ void load_real_row(const worker<Complex, Size>& me, const Stored* input,
                                              Complex (&x)[shape<Size>::points], void* info) {
  if constexpr (staged<Size>() && 2 * Size * sizeof(Stored) > 32) {
#pragma unroll
    for (unsigned int i = 0; i < 2 * me.points; ++i) {
      const unsigned int element = me.lane + i * me.group;
      const unsigned int row = me.first_row + element / (2 * Size);
      real_element(me, i) = row < me.batch ? fft_load(input, row, element % (2 * Size), 2 * Size, info) : 0;
    }
    me.wait();
#pragma unroll
    for (unsigned int i = 0; i < me.points; ++i) { x[i] = me.own_point(i); }
  } else {
    if (me.row() < me.batch) {
#pragma unroll
      for (unsigned int i = 0; i < me.points; ++i) {
        const unsigned int element = 2 * (me.place() + i * me.threads);
        x[i].x = fft_load(input, me.row(), element, 2 * Size, info);
        x[i].y = fft_load(input, me.row(), element + 1, 2 * Size, info);
      }
    }
  }
}

// The reverse. The buffer may still be read afterwards.
template <typename Stored, typename Complex, unsigned int Size>
__device__ __forceinline__ void store_real_row(const worker<Complex, Size>& me, Stored* output,
                                               const Complex (&x)[shape<Size>::points], void* info) {
  me.wait();
#pragma unroll
  for (unsigned int i = 0; i < me.points; ++i) { me.own_point(i) = x[i]; }
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
