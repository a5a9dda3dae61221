#pragma once
#include <cuda_fp16.h>
#include <minilib/minilib.cuh>
#ifdef __CUDACC_RTC__
#include <cuda/std/cstdint>
using cuda::std::int32_t;
using cuda::std::int64_t;
using cuda::std::uint32_t;
#else
#include <cstdint>
#endif

namespace vecdb {
using int8 = signed char;
using uint8 = unsigned char;

// Passed to kernels and to functions by value.
struct search_params {
  const unsigned* bitset;
  unsigned long long n_rows;
  float scale;
  int k;
};
}  // namespace vecdb
