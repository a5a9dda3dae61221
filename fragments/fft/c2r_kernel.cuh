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
  const worker<complex, half> me(batch);
  complex last{};
  if (me.place() == 0 && me.row() < batch) { last = fft_load(input, me.row(), half, half + 1, load_info); }
  stage_in(me, input, half + 1, load_info);
  me.wait();

  // The transforms of the even and the odd elements, each twice itself, combined into one: even plus i times odd.
  complex x[me.points];
  const complex own = root(static_cast<real>(me.place()) / static_cast<real>(half));
#pragma unroll
  for (unsigned int i = 0; i < me.points; ++i) {
    const unsigned int k = me.place() + i * me.threads;
    complex value = me.point(me.place(), i * me.threads);
    complex mirrored = conjugate(me.point((half - k) % half, 0));
    if (k == 0) {
      value.y = 0;
      mirrored = {last.x, 0};
    }
    const complex turn = conjugate(turned(own, i * (16 / me.points)));  // exp(2 pi i k / Size)
    const complex odd = multiply(subtract(value, mirrored), turn);
    // Even plus i odd, with real and imaginary part exchanged: a forward transform is then an inverse one.
    const complex even = add(value, mirrored);
    x[i] = {even.y + odd.x, even.x - odd.y};
  }
  transform<true>(me, x);
#pragma unroll
  for (unsigned int i = 0; i < me.points; ++i) { x[i] = exchanged(x[i]); }
  store_real_row(me, output, x, store_info);
}

}  // namespace fft
