// SPDX-License-Identifier: Apache-2.0
// Real to complex, by a complex transform of half the size: its points are neighbours in the row, one as the real and one
// as the imaginary part.
#pragma once

#include "passes.cuh"
#include "real_rows.cuh"
#include "rows.cuh"

namespace fft {

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
  const worker<complex, half> me(batch);
  complex x[me.points];
  load_real_row(me, input, x, load_info);
  transform<true>(me, x);

  // x is the transform of the even elements plus i times that of the odd ones. That of real elements is its own mirror
  // image, conjugated: so the sum and the difference with the mirror image separate the two.
  me.wait();
#pragma unroll
  for (unsigned int i = 0; i < me.points; ++i) { me.point(me.place(), i * me.threads) = x[i]; }
  me.wait();
  const complex own = root(static_cast<real>(me.place()) / static_cast<real>(half));
  const complex zero = x[0];
#pragma unroll
  for (unsigned int i = 0; i < me.points; ++i) {
    const unsigned int k = me.place() + i * me.threads;
    const complex mirrored = conjugate(me.point((half - k) % half, 0));
    const complex even = add(x[i], mirrored);
    const complex odd = turned(subtract(x[i], mirrored), 8);
    const complex turn = turned(own, i * (16 / me.points));  // exp(-2 pi i k / Size)
    const complex sum = add(even, multiply(odd, turn));
    x[i] = {sum.x / 2, sum.y / 2};
  }
  // The last element has no point of its own: it is that of even minus that of odd elements, both real.
  if (me.place() == 0 && me.row() < batch) {
    fft_store(output, me.row(), half, half + 1, complex{zero.x - zero.y, 0}, store_info);
  }
  store_row<true>(me, output, half + 1, x, store_info);
}

}  // namespace fft
