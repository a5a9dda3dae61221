#pragma once
#include <cuda/std/cstdint>
#include <cuda/std/type_traits>
#include <cuda_fp16.h>
using cuda::std::int8_t; using cuda::std::uint8_t; using cuda::std::int32_t; using cuda::std::uint32_t;
namespace wide {
template <typename T> __device__ float metric(const T* x, const T* y, uint32_t count);
__device__ float post(float x);
__device__ bool filter(const uint32_t* words, uint32_t row);
__device__ bool before(float a, float b);
}
