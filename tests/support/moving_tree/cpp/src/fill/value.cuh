#pragma once
#include <rowmath/rowmath.cuh>
namespace rowset {
template <typename T>
__device__ T value(std::uint32_t row);
}  // namespace rowset
