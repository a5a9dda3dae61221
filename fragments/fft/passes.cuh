// SPDX-License-Identifier: Apache-2.0
// A forward transform of points that lie in the registers of several threads: Stockham's passes, which need no reordering.
#pragma once

#include "butterfly.cuh"
#include "worker.cuh"

namespace fft {

// The radix of the pass before which transforms of `done` points are done: the first takes all points of a thread, the
// last what remains, and those in between 16.
template <unsigned int Size>
constexpr __device__ unsigned int radix(unsigned int done) {
  if (done == 1) { return shape<Size>::points; }
  return Size / done <= shape<Size>::points ? Size / done : 16;
}

// powers[n] = exp(-pi i angle 2^n), for an angle from 0 to 2 / Radix. The last and every second before it are squares, so
// that no root has an angle above 1/2, and no error is doubled twice.
template <unsigned int Radix, typename Complex, typename Real>
__device__ __forceinline__ void find_powers(Complex (&powers)[5], Real angle) {
#pragma unroll
  for (unsigned int n = 0; 1u << n < Radix; ++n) {
    const unsigned int left = Radix >> n;
    if (n > 0 && (left == 2 || left == 8)) {
      powers[n] = multiply(powers[n - 1], powers[n - 1]);
    } else {
      powers[n] = root(angle * (1u << n));
    }
  }
}

// One pass, after which transforms of Done times its radix points are done; then the others. Busy: the buffer may still
// be read by threads of the group.
template <unsigned int Done, bool Busy, typename Complex, unsigned int Size>
__device__ __forceinline__ void pass(const worker<Complex, Size>& me, Complex (&x)[shape<Size>::points]) {
  using real = decltype(Complex::x);
  constexpr unsigned int Radix = radix<Size>(Done);
  constexpr unsigned int butterflies = shape<Size>::points / Radix;
  const unsigned int place = me.place();
  Complex powers[5]{};
  if constexpr (Done > 1) {
    find_powers<Radix>(powers, static_cast<real>(place % Done) * (static_cast<real>(2) / (Done * Radix)));
  }
#pragma unroll
  for (unsigned int b = 0; b < butterflies; ++b) {
    Complex part[Radix], own[5]{};
#pragma unroll
    for (unsigned int r = 0; r < Radix; ++r) { part[r] = x[b + r * butterflies]; }
    if constexpr (Done > 1) {
      // Of butterfly `place + threads * b`: those of the first, turned by what the compiler knows.
#pragma unroll
      for (unsigned int n = 0; 1u << n < Radix; ++n) {
        own[n] = turned(powers[n], (b * me.threads % Done * 64 / (Done * Radix)) << n);
      }
    }
    butterfly<(Done > 1)>(part, own);
#pragma unroll
    for (unsigned int r = 0; r < Radix; ++r) { x[b + r * butterflies] = part[r]; }
  }
  // After the last pass, each thread holds points with the same numbers as before the first.
  if constexpr (Done * Radix < Size) {
    if constexpr (Busy) { me.wait(); }
    const unsigned int first = place / Done * (Done * Radix) + place % Done;
    // 16 threads access neighbours.
    constexpr bool plain = Done % 16 == 0;
#pragma unroll
    for (unsigned int b = 0; b < butterflies; ++b) {
#pragma unroll
      for (unsigned int r = 0; r < Radix; ++r) {
        const unsigned int offset = b * (me.threads * Radix) + r * Done;
        (plain ? me.plain_point(first, offset) : me.point(first, offset)) = x[b + r * butterflies];
      }
    }
    me.wait();
#pragma unroll
    for (unsigned int i = 0; i < shape<Size>::points; ++i) {
      x[i] = plain ? me.plain_point(place, i * me.threads) : me.point(place, i * me.threads);
    }
    pass<Done * Radix, true>(me, x);
  }
}

// x[i] is point `place + threads * i`, before and after. Returns with the buffer possibly still being read.
template <bool Busy, typename Complex, unsigned int Size>
__device__ __forceinline__ void transform(const worker<Complex, Size>& me, Complex (&x)[shape<Size>::points]) {
  pass<1, Busy>(me, x);
}

}  // namespace fft
