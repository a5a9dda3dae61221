// SPDX-License-Identifier: Apache-2.0
// Element-wise application of the caller's function: the entry point of the family.
#pragma once

#include <cuda/std/cstdint>

#include "user_transform.cuh"

namespace transform {

using cuda::std::uint64_t;

// output[i] = user_transform(input[i]) for the first `size` elements. The two arrays may be the same, so the
// pointers are not __restrict__.
//
// Launch in one dimension, without dynamic shared memory; any grid and block work, because threads stride over the
// elements; for example grid = ceil(size / block), block = 256.
template <typename T>
__global__ void apply_transform(const T* input, T* output, uint64_t size) {
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < size; i += stride) {
    output[i] = ::user_transform(input[i]);
  }
}

}  // namespace transform
