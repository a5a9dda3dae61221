// SPDX-License-Identifier: Apache-2.0
// The elementary functions that histories need, in explicit fused multiply-adds. The toolkit's own (logf, sincosf)
// would do as well, but their last bit may change with the toolkit. With these, and `fma = false` in family.toml, which
// keeps the compiler from fusing where the source does not, a history is the same to the last bit however its kernel was
// compiled and linked, even on a CPU.
#pragma once

#include "types.cuh"

namespace transport {

// Returns -log(u) for a normal u with 0 < u < 1, with a relative error of 1e-7.
__device__ __forceinline__ float minus_logarithm(float u) {
  // u = 2^exponent * mantissa with mantissa in [sqrt(1/2), sqrt(2)), where log(1 + f) is a short polynomial.
  const int bits = __float_as_int(u);
  const int exponent = (bits - 0x3f3504f3) >> 23;
  const float f = __int_as_float(bits - exponent * 0x00800000) - 1.0f;
  float p = 0.08734868466854095f;
  p = fmaf(p, f, -0.1430751085281372f);
  p = fmaf(p, f, 0.1491795927286148f);
  p = fmaf(p, f, -0.16570508480072021f);
  p = fmaf(p, f, 0.19962073862552643f);
  p = fmaf(p, f, -0.25001755356788635f);
  p = fmaf(p, f, 0.33333951234817505f);
  p = fmaf(p, f, -0.49999991059303284f);
  const float logarithm = fmaf(f * f, p, f);
  return -fmaf(static_cast<float>(exponent), 0.6931471805599453f, logarithm);
}

struct azimuth {
  float cosine, sine;
};

// Returns the point on the unit circle at u turns, for 0 <= u <= 1; the error of each coordinate is below 1e-7.
__device__ __forceinline__ azimuth unit_circle(float u) {
  // The nearest quarter turn, and the rest of u, which is exact and at most an eighth.
  const int quarter = static_cast<int>(fmaf(u, 4.0f, 0.5f));
  const float r = fmaf(static_cast<float>(quarter), -0.25f, u);
  const float t = r * r;
  float s = -75.40206909179688f;
  s = fmaf(s, t, 81.5925521850586f);
  s = fmaf(s, t, -41.3416633605957f);
  s = fmaf(s, t, 6.2831854820251465f) * r;
  float c = 59.22040557861328f;
  c = fmaf(c, t, -85.44285583496094f);
  c = fmaf(c, t, 64.93931579589844f);
  c = fmaf(c, t, -19.739208221435547f);
  c = fmaf(c, t, 1.0f);
  const float cosine = quarter & 1 ? s : c;
  const float sine = quarter & 1 ? c : s;
  return {(quarter + 1) & 2 ? -cosine : cosine, quarter & 2 ? -sine : sine};
}

}  // namespace transport
