// SPDX-License-Identifier: Apache-2.0
// Complex arithmetic on float2 and double2, and the roots of unity.
#pragma once

namespace fft {

template <typename Real>
struct complex_of;
template <>
struct complex_of<float> { using type = float2; };
template <>
struct complex_of<double> { using type = double2; };

template <typename Real>
using complex_t = typename complex_of<Real>::type;

template <typename Complex>
__device__ __forceinline__ Complex add(Complex a, Complex b) {
  return {a.x + b.x, a.y + b.y};
}

template <typename Complex>
__device__ __forceinline__ Complex subtract(Complex a, Complex b) {
  return {a.x - b.x, a.y - b.y};
}

template <typename Complex>
__device__ __forceinline__ Complex multiply(Complex a, Complex b) {
  return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}

template <typename Complex>
__device__ __forceinline__ Complex conjugate(Complex a) {
  return {a.x, -a.y};
}

// Real and imaginary part exchanged. An inverse transform is a forward one of exchanged input, with its output exchanged.
template <typename Complex>
__device__ __forceinline__ Complex exchanged(Complex a) {
  return {a.y, a.x};
}

// exp(-pi i x). The angles here are fractions whose denominator is a power of two: they are exact, and so the result is
// as good as that of sincospi, at most 2 units in the last place off.
__device__ __forceinline__ float2 root(float x) {
  float2 result;
  sincospif(-x, &result.y, &result.x);
  return result;
}
__device__ __forceinline__ double2 root(double x) {
  double2 result;
  sincospi(-x, &result.y, &result.x);
  return result;
}

// exp(-2 pi i k / 32), for a k that the compiler knows: rounded once.
template <typename Complex>
__device__ __forceinline__ Complex root_of_32(unsigned int k) {
  constexpr double cosines[] = {1.0,
                                0.98078528040323044913,
                                0.92387953251128675613,
                                0.83146961230254523708,
                                0.70710678118654752440,
                                0.55557023301960222474,
                                0.38268343236508977173,
                                0.19509032201612826785,
                                0.0};
  using real = decltype(Complex::x);
  const unsigned int quarter = (k / 8) % 4;
  const real cosine = static_cast<real>(cosines[k % 8]);
  const real sine = static_cast<real>(cosines[8 - k % 8]);
  if (quarter == 0) { return {cosine, -sine}; }
  if (quarter == 1) { return {-sine, -cosine}; }
  if (quarter == 2) { return {-cosine, sine}; }
  return {sine, cosine};
}

// a times exp(-2 pi i k / 32), for a k that the compiler knows.
template <typename Complex>
__device__ __forceinline__ Complex turned(Complex a, unsigned int k) {
  if (k == 0) { return a; }
  if (k == 8) { return {a.y, -a.x}; }
  return multiply(a, root_of_32<Complex>(k));
}

}  // namespace fft
