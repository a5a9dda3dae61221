#pragma once
#include <common/filter.cuh>
namespace vecdb::cluster {
template <typename T>
__device__ float reduce(const T* data, int n);
namespace op {
__device__ inline float sum(float a, float b) { return a + b; }
__device__ inline float min(float a, float b) { return a < b ? a : b; }
__device__ inline float max(float a, float b) { return a > b ? a : b; }
__device__ inline float product(float a, float b) { return a * b; }
__device__ inline float last(float, float b) { return b; }
}  // namespace op
}  // namespace vecdb::cluster
