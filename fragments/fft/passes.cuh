// SPDX-License-Identifier: Apache-2.0
// A forward transform of points that lie in the registers of several threads: Stockham's passes, which need no reordering.
#pragma once

#include "butterfly.cuh"
#include "worker.cuh"

namespace fft {

// The passes are of radix 16 but for the first, which takes what remains: the one that has no twiddle factors.
constexpr __device__ unsigned int first_radix(unsigned int size) { return size <= 16 ? size : first_radix(size / 16); }

// Multiplies x[r] by exp(-pi i angle r). Four roots are computed and the others are products of those, so that none is
// the product of more than four: its error is a few units in the last place, where powers of one root have 15 times that
// root's error.
template <typename Complex, typename Real>
__device__ __forceinline__ void twiddle(Complex (&x)[16], Real angle) {
  Complex factors[16];
#pragma unroll
  for (int r = 1; r < 16; ++r) {
    const int rest = r & (r - 1);  // without the lowest bit
    const int lowest = r ^ rest;
    factors[r] = rest == 0 ? root(angle * r) : multiply(factors[rest], factors[lowest]);
    x[r] = multiply(x[r], factors[r]);
  }
}

// One pass of Radix, after which transforms of Done * Radix points are done; then the others. Busy: the buffer may still
// be read by threads of the group.
template <unsigned int Done, unsigned int Radix, bool Busy, typename Complex, unsigned int Size>
__device__ __forceinline__ void pass(const worker<Complex, Size>& me, Complex (&x)[shape<Size>::points]) {
  using real = decltype(Complex::x);
  constexpr unsigned int butterflies = shape<Size>::points / Radix;
  const unsigned int place = me.place();
#pragma unroll
  for (unsigned int b = 0; b < butterflies; ++b) {
    Complex part[Radix];
#pragma unroll
    for (unsigned int r = 0; r < Radix; ++r) { part[r] = x[b + r * butterflies]; }
    if constexpr (Done > 1) { twiddle(part, static_cast<real>(place % Done) / static_cast<real>(Done * Radix / 2)); }
    butterfly(part);
#pragma unroll
    for (unsigned int r = 0; r < Radix; ++r) { x[b + r * butterflies] = part[r]; }
  }
  // After the last pass, each thread holds points with the same numbers as before the first.
  if constexpr (Done * Radix < Size) {
    if constexpr (Busy) { me.wait(); }
    const unsigned int first = place / Done * (Done * Radix) + place % Done;
#pragma unroll
    for (unsigned int b = 0; b < butterflies; ++b) {
#pragma unroll
      for (unsigned int r = 0; r < Radix; ++r) {
        me.point(first, b * (me.threads * Radix) + r * Done) = x[b + r * butterflies];
      }
    }
    me.wait();
#pragma unroll
    for (unsigned int i = 0; i < shape<Size>::points; ++i) { x[i] = me.point(place, i * me.threads); }
    pass<Done * Radix, 16, true>(me, x);
  }
}

// x[i] is point `place + threads * i`, before and after. Returns with the buffer possibly still being read.
template <bool Busy, typename Complex, unsigned int Size>
__device__ __forceinline__ void transform(const worker<Complex, Size>& me, Complex (&x)[shape<Size>::points]) {
  pass<1, first_radix(Size), Busy>(me, x);
}

}  // namespace fft
