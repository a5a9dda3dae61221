#pragma once
#include <common/filter.cuh>
namespace vecdb::brute_force {
template <typename T>
__device__ float metric(const T* a, const T* b, int dim);
}  // namespace vecdb::brute_force
