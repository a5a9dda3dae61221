#pragma once
#include <common/filter.cuh>
namespace vecdb::ivf {
template <typename T, typename AccT>
__device__ void distance(AccT& acc, T a, T b);
__device__ float post(float a);
}  // namespace vecdb::ivf
