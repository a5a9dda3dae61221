// SPDX-License-Identifier: Apache-2.0
// Complex to real, with a complex transform of half the size: the steps of r2c_kernel.cuh in reverse.
#pragma once

#include "passes.cuh"
#include "real_rows.cuh"
#include "rows.cuh"

namespace fft {

// For each of `batch` rows of Size / 2 + 1 complex elements, taken as the first half of Size elements that are their own
// mirror image, conjugated: output[n] = sum over k of input[k] exp(2 pi i n k / Size), not divided by Size. The imaginary
// parts of the first and the last element count as zero.
//
// Elements are read by `fft_load` and written by `fft_store`, which get `load_info` and `store_info`. Input and output
// must not overlap. For the launch see worker.cuh, with half the size.
template <typename StoredComplex, typename Stored, unsigned int Size>
__global__ void __launch_bounds__(shape<Size / 2>::block)
    c2r_kernel(const StoredComplex* input, Stored* output, unsigned int batch, void* load_info, void* store_info) {
  using real = computed_t<Stored>;
  using complex = complex_t<real>;
  constexpr unsigned int half = Size / 2;
  constexpr bool through_buffer = staged<half>();
  const worker<complex, half> me(batch);
  const bool has_row = me.row() < batch;
  if (me.threads == me.group && !has_row) { return; }
  const unsigned int place = me.place();

  // Elements k and half - k at once: this thread needs the first, and the thread at the mirrored place the other, or this
  // one if its place is 0. Element `half` has no place in the buffer, and the one at half / 2 is its own mirror image.
  constexpr unsigned int pairs = (me.points + 1) / 2;
  complex x[me.points]{}, upper[pairs]{}, middle{};
  if constexpr (through_buffer) {
    if (place == 0 && has_row) { upper[0] = fft_load(input, me.row(), half, half + 1, load_info); }
    stage_in(me, input, half + 1, load_info);
    me.wait();
#pragma unroll
    for (unsigned int i = 0; i < pairs; ++i) {
      x[i] = me.own_point(i);
      if (i > 0 || place > 0) { upper[i] = me.mirrored_point(i); }
    }
    if (me.points > 1 && place == 0) { middle = me.own_point(pairs); }
    me.wait();
  } else if (has_row) {
#pragma unroll
    for (unsigned int i = 0; i < pairs; ++i) {
      const unsigned int k = place + i * me.threads, mirrored = me.threads - place + (me.points - 1 - i) * me.threads;
      x[i] = fft_load(input, me.row(), k, half + 1, load_info);
      upper[i] = fft_load(input, me.row(), mirrored, half + 1, load_info);
    }
    if (me.points > 1 && place == 0) { middle = fft_load(input, me.row(), half / 2, half + 1, load_info); }
  }
  if (place == 0) { x[0].y = upper[0].y = 0; }
  // exp(-2 pi i place / Size) / i
  const complex own = quarter_turned(root(static_cast<real>(place) / static_cast<real>(half)), 1);
#pragma unroll
  for (unsigned int i = 0; i < pairs; ++i) {
    // The transforms of the even and the odd elements, each twice itself, combined into one: even plus i times odd. With
    // real and imaginary part exchanged, a forward transform is then an inverse one.
    const complex mirrored = conjugate(upper[i]);
    complex sum = add(x[i], mirrored), difference = subtract(x[i], mirrored);
    combine(sum, difference, conjugate(turned(own, i * (32 / me.points))));
    x[i] = exchanged(sum);
    upper[i] = exchanged(conjugate(difference));
  }
  if constexpr (me.points > 1) {
    if (place == 0) { upper[0] = {-2 * middle.y, 2 * middle.x}; }
    (place == 0 ? me.own_point(pairs) : me.mirrored_point(0)) = upper[0];
#pragma unroll
    for (unsigned int i = 1; i < pairs; ++i) { me.mirrored_point(i) = upper[i]; }
    me.wait();
#pragma unroll
    for (unsigned int i = pairs; i < me.points; ++i) { x[i] = me.own_point(i); }
  }
  transform<true>(me, x);
#pragma unroll
  for (unsigned int i = 0; i < me.points; ++i) { x[i] = exchanged(x[i]); }
  store_real_row(me, output, x, store_info);
}

}  // namespace fft
