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

// exp(-pi i x) for x from 0 to 1/2, where no argument has to be reduced. The angles here have few bits, so x is exact. In
// float two polynomials, which together are at most 3 times 2^-24 off.
__device__ __forceinline__ float2 root(float x) {
  const float square = x * x;
  const float cosine =
      (((-0.0239638742f * square + 0.234683767f) * square - 1.33516157f) * square + 4.05870533f) * square - 4.93480206f;
  const float sine = ((0.0775096118f * square - 0.59822005f) * square + 2.55006766f) * square - 5.16770983f;
  // Pi in two parts: the first exactly, the other with what is small anyway.
  const float rest = x * (sine * square - 8.742278e-8f);
  return {cosine * square + 1.0f, -(x * 3.14159274f + rest)};
}
__device__ __forceinline__ double2 root(double x) {
  double2 result;
  sincospi(-x, &result.y, &result.x);
  return result;
}

// exp(-2 pi i k / 64) for k from 0 to 15, which the compiler knows: rounded once.
template <typename Complex>
__device__ __forceinline__ Complex root_of_64(unsigned int k) {
  constexpr double cosines[] = {1.0,
                                0.99518472667219688624,
                                0.98078528040323044913,
                                0.95694033573220886494,
                                0.92387953251128675613,
                                0.88192126434835502971,
                                0.83146961230254523708,
                                0.77301045336273696081,
                                0.70710678118654752440,
                                0.63439328416364549822,
                                0.55557023301960222474,
                                0.47139673682599764856,
                                0.38268343236508977173,
                                0.29028467725446236764,
                                0.19509032201612826785,
                                0.09801714032956060199,
                                0.0};
  using real = decltype(Complex::x);
  return {static_cast<real>(cosines[k]), -static_cast<real>(cosines[16 - k])};
}

// a times exp(-2 pi i k / 4), and times exp(-2 pi i k / 64), for a k that the compiler knows.
template <typename Complex>
__device__ __forceinline__ Complex quarter_turned(Complex a, unsigned int k) {
  if (k % 4 == 0) { return a; }
  if (k % 4 == 1) { return {a.y, -a.x}; }
  if (k % 4 == 2) { return {-a.x, -a.y}; }
  return {-a.y, a.x};
}
template <typename Complex>
__device__ __forceinline__ Complex turned(Complex a, unsigned int k) {
  const Complex value = k % 16 == 0 ? a : multiply(a, root_of_64<Complex>(k % 16));
  return quarter_turned(value, k / 16);
}

}  // namespace fft
