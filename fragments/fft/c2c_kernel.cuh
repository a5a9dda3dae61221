// SPDX-License-Identifier: Apache-2.0
// Complex to complex.
#pragma once

#include "passes.cuh"
#include "rows.cuh"

namespace fft {

// For each of `batch` rows: output[k] = sum over n of input[n] exp(-+ 2 pi i n k / Size), minus for the forward
// transform, plus for the inverse one, which is not divided by Size.
//
// Elements are read by `fft_load` and written by `fft_store`, which get `load_info` and `store_info`. Where both access
// their rows without gaps, input and output may be the same array. For the launch see worker.cuh.
template <typename Stored, bool Inverse, unsigned int Size>
__global__ void __launch_bounds__(shape<Size>::block)
    c2c_kernel(const Stored* input, Stored* output, unsigned int batch, void* load_info, void* store_info) {
  using complex = computed_t<Stored>;
  const worker<complex, Size> me(batch);
  if (!staged<Size>() && me.row() >= batch) { return; }
  complex x[me.points];
  load_row(me, input, x, load_info);
  if constexpr (Inverse) {
#pragma unroll
    for (unsigned int i = 0; i < me.points; ++i) { x[i] = exchanged(x[i]); }
  }
  transform<staged<Size>()>(me, x);
  if constexpr (Inverse) {
#pragma unroll
    for (unsigned int i = 0; i < me.points; ++i) { x[i] = exchanged(x[i]); }
  }
  store_row(me, output, x, store_info);
}

}  // namespace fft
