#pragma once
#ifndef MINILIB_BUNDLED
#error "compiled without the definitions of the bundled library"
#endif
#include <minilib/detail.cuh>

namespace minilib {
template <typename T>
__device__ inline T clamp(T a, T low, T high) { return a < low ? low : a > high ? high : a; }
}  // namespace minilib
