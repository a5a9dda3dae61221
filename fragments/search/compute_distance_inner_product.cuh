// SPDX-License-Identifier: Apache-2.0
// Inner product, negated: the most similar row has the smallest distance.
#pragma once

#include "compute_distance.cuh"

namespace search {

template <typename T>
__device__ float compute_distance(T query, T row) {
  // Convert first: the product of two __half is exact in float.
  return -static_cast<float>(query) * static_cast<float>(row);
}

}  // namespace search
