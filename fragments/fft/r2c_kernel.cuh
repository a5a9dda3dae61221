// SPDX-License-Identifier: Apache-2.0
// Real to complex, by a complex transform of half the size: its points are neighbours in the row, one as the real and one
// as the imaginary part.
#pragma once

#include "passes.cuh"
#include "real_rows.cuh"
#include "rows.cuh"

namespace fft {

// The rows of the group, Size + 1 elements of its buffer each, as one.
template <typename Stored, typename Complex, unsigned int Size>
__device__ __forceinline__ void store_rows(const worker<Complex, Size>& me, Stored* output, void* info) {
  constexpr unsigned int length = Size + 1, rows = shape<Size>::group / shape<Size>::threads;
  const unsigned int existing = me.first_row < me.batch ? me.batch - me.first_row : 0;
#pragma unroll
  for (unsigned int i = 0; i <= me.points; ++i) {
    const unsigned int element = me.lane + i * me.group;
    const unsigned int row = element * ((1u << 20) / length + 1) >> 20;  // element / length, which is below 600
    if (row < rows && row < existing) {
      fft_store(output, me.first_row + row, element - row * length, length, me.buffer[element], info);
    }
  }
}

// For each of `batch` rows of Size real elements: output[k] = sum over n of input[n] exp(-2 pi i n k / Size) for k from 0
// to Size / 2; the others are the conjugates of these. Output rows have Size / 2 + 1 elements.
//
// Elements are read by `fft_load` and written by `fft_store`, which get `load_info` and `store_info`. Input and output
// must not overlap. For the launch see worker.cuh, with half the size.
template <typename Stored, typename StoredComplex, unsigned int Size>
__global__ void __launch_bounds__(shape<Size / 2>::block)
    r2c_kernel(const Stored* input, StoredComplex* output, unsigned int batch, void* load_info, void* store_info) {
  using real = computed_t<Stored>;
  using complex = complex_t<real>;
  constexpr unsigned int half = Size / 2;
  // Rows of half + 1 elements begin anywhere: the threads of a warp write several of them as one.
  constexpr bool through_buffer = shape<half>::threads < shape<half>::group;
  const worker<complex, half> me(batch, through_buffer ? half + 1 : half);
  if (!through_buffer && me.row() >= batch) { return; }
  complex x[me.points]{};
  load_real_row(me, input, x, load_info);
  transform<through_buffer>(me, x);

  // x is the transform of the even elements plus i times that of the odd ones. That of real elements is its own mirror
  // image, conjugated: so the sum and the difference with the mirror image separate the two, for points k and half - k at
  // once. Those of the upper half are with the thread at the mirrored place, or with this one if its place is 0.
  constexpr unsigned int pairs = (me.points + 1) / 2;
  const unsigned int place = me.place();
  me.wait();
#pragma unroll
  for (unsigned int i = pairs; i < me.points; ++i) { me.own_point(i) = x[i]; }
  me.wait();
  complex lower[pairs], upper[pairs];
#pragma unroll
  for (unsigned int i = 0; i < pairs; ++i) {
    upper[i] = x[0];
    if (i > 0 || place > 0) { upper[i] = me.mirrored_point(i); }
  }
  const complex whole = root(static_cast<real>(place) / static_cast<real>(half));
  const complex own = {whole.y / 2, -whole.x / 2};  // exp(-2 pi i place / Size) / 2 i
#pragma unroll
  for (unsigned int i = 0; i < pairs; ++i) {
    const complex mirrored = conjugate(upper[i]);
    const complex even = add(x[i], mirrored);
    lower[i] = {even.x / 2, even.y / 2};
    upper[i] = subtract(x[i], mirrored);
    combine(lower[i], upper[i], turned(own, i * (32 / me.points)));
    upper[i] = conjugate(upper[i]);
  }
  // The point at half / 2 is its own mirror image.
  const complex middle = conjugate(x[me.points / 2]);
  if constexpr (through_buffer) {
    me.wait();
    complex* const row = me.buffer + me.lane / me.threads * (half + 1);
#pragma unroll
    for (unsigned int i = 0; i < pairs; ++i) {
      row[place + i * me.threads] = lower[i];
      row[half - place - i * me.threads] = upper[i];
    }
    if (me.points > 1 && place == 0) { row[half / 2] = middle; }
    me.wait();
    store_rows(me, output, store_info);
  } else {
#pragma unroll
    for (unsigned int i = 0; i < pairs; ++i) {
      const unsigned int k = place + i * me.threads, mirrored = me.threads - place + (me.points - 1 - i) * me.threads;
      fft_store(output, me.row(), k, half + 1, lower[i], store_info);
      fft_store(output, me.row(), mirrored, half + 1, upper[i], store_info);
    }
    if (me.points > 1 && place == 0) { fft_store(output, me.row(), half / 2, half + 1, middle, store_info); }
  }
}

}  // namespace fft
