// SPDX-License-Identifier: Apache-2.0
// Forward transforms of 1 to 32 points that one thread holds in registers, in place, in natural order. All indices are
// known to the compiler, so that no array here goes to memory.
#pragma once

#include "complex.cuh"

namespace fft {

// a + factor b and a - factor b, in place of a and b. With fused multiplications and additions these are 6 instructions,
// while a product and two sums are 8.
template <typename Complex>
__device__ __forceinline__ void combine(Complex& a, Complex& b, Complex factor) {
  const Complex sum = {a.x + factor.x * b.x - factor.y * b.y, a.y + factor.x * b.y + factor.y * b.x};
  const decltype(a.x) two = 2;
  b = {fma(two, a.x, -sum.x), fma(two, a.y, -sum.y)};
  a = sum;
}

// The transform of the points x[r] times w^r, from those of the even and of the odd ones. powers[n] is w to the power of
// 2^n; it is not read where Turned is false, which is for w = 1.
template <bool Turned, unsigned int Points, typename Complex>
__device__ __forceinline__ void butterfly(Complex (&x)[Points], const Complex* powers) {
  if constexpr (Points > 1) {
    constexpr unsigned int half = Points / 2;
    Complex even[half], odd[half];
#pragma unroll
    for (unsigned int k = 0; k < half; ++k) {
      even[k] = x[2 * k];
      odd[k] = x[2 * k + 1];
    }
    butterfly<Turned>(even, powers + 1);
    butterfly<Turned>(odd, powers + 1);
#pragma unroll
    for (unsigned int k = 0; k < half; ++k) {
      const unsigned int turn = k * (64 / Points);
      Complex a = even[k], b = quarter_turned(odd[k], turn / 16);
      if constexpr (Turned) {
        combine(a, b, turned(powers[0], turn % 16));
      } else if (turn % 16 == 0) {
        const Complex difference = subtract(a, b);
        a = add(a, b);
        b = difference;
      } else {
        combine(a, b, root_of_64<Complex>(turn % 16));
      }
      x[k] = a;
      x[k + half] = b;
    }
  }
}

}  // namespace fft
