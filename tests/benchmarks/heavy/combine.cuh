#pragma once
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cuda/std/complex>
#include <cuda/std/cstdint>
#include <cuda/std/tuple>

namespace heavy {
using cuda::std::int32_t;
using cuda::std::uint32_t;
using cuda::std::uint64_t;

template <typename T>
__device__ T combine(T a, T b);

}  // namespace heavy
