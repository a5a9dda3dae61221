#pragma once
#include "combine.cuh"

namespace heavy {

struct combine_operator {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return combine<T>(a, b);
  }
};

template <typename T, int BlockSize, cub::BlockReduceAlgorithm Algorithm>
__global__ void reduce(const T* values, T* sums, uint32_t count) {
  using block_reduce = cub::BlockReduce<T, BlockSize, Algorithm>;
  __shared__ typename block_reduce::TempStorage storage;
  const uint32_t index = blockIdx.x * BlockSize + threadIdx.x;
  const T own = index < count ? values[index] : T{};
  const uint32_t left = count - blockIdx.x * BlockSize;
  const T sum = block_reduce(storage).Reduce(own, combine_operator{}, static_cast<int>(left < BlockSize ? left : BlockSize));
  if (threadIdx.x == 0) { sums[blockIdx.x] = sum; }
}

}  // namespace heavy
