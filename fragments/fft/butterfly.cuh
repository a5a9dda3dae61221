// SPDX-License-Identifier: Apache-2.0
// Forward transforms of 1, 2, 4, 8 and 16 points that one thread holds in registers, in place, in natural order. All
// indices are known to the compiler, so that no array here goes to memory.
#pragma once

#include "complex.cuh"

namespace fft {

template <typename Complex>
__device__ __forceinline__ void butterfly(Complex (&)[1]) {}

template <typename Complex>
__device__ __forceinline__ void butterfly(Complex (&x)[2]) {
  const Complex difference = subtract(x[0], x[1]);
  x[0] = add(x[0], x[1]);
  x[1] = difference;
}

template <typename Complex>
__device__ __forceinline__ void butterfly(Complex (&x)[4]) {
  const Complex even_sum = add(x[0], x[2]), even_difference = subtract(x[0], x[2]);
  const Complex odd_sum = add(x[1], x[3]), odd_difference = subtract(x[1], x[3]);
  x[0] = add(even_sum, odd_sum);
  x[1] = {even_difference.x + odd_difference.y, even_difference.y - odd_difference.x};
  x[2] = subtract(even_sum, odd_sum);
  x[3] = {even_difference.x - odd_difference.y, even_difference.y + odd_difference.x};
}

// Rows × Columns points: a butterfly of each column, then of each row, with a turn of each point in between.
template <int Rows, int Columns, typename Complex>
__device__ __forceinline__ void butterfly_of_butterflies(Complex (&x)[Rows * Columns]) {
#pragma unroll
  for (int column = 0; column < Columns; ++column) {
    Complex part[Rows];
#pragma unroll
    for (int row = 0; row < Rows; ++row) { part[row] = x[row * Columns + column]; }
    butterfly(part);
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
      x[row * Columns + column] = turned(part[row], row * column * (32 / (Rows * Columns)));
    }
  }
  Complex result[Rows * Columns];
#pragma unroll
  for (int row = 0; row < Rows; ++row) {
    Complex part[Columns];
#pragma unroll
    for (int column = 0; column < Columns; ++column) { part[column] = x[row * Columns + column]; }
    butterfly(part);
#pragma unroll
    for (int column = 0; column < Columns; ++column) { result[row + Rows * column] = part[column]; }
  }
#pragma unroll
  for (int i = 0; i < Rows * Columns; ++i) { x[i] = result[i]; }
}

template <typename Complex>
__device__ __forceinline__ void butterfly(Complex (&x)[8]) {
  butterfly_of_butterflies<4, 2>(x);
}

template <typename Complex>
__device__ __forceinline__ void butterfly(Complex (&x)[16]) {
  butterfly_of_butterflies<4, 4>(x);
}

}  // namespace fft
