// SPDX-License-Identifier: Apache-2.0
// Squared Euclidean distance (L2), without the root, which would cost time and not change the order of rows.
#pragma once

#include "compute_distance.cuh"

namespace search {

template <typename T>
__device__ float compute_distance(T query, T row) {
  // Convert first: a difference of two __half would be rounded to 11 bits before it is squared.
  const float difference = static_cast<float>(query) - static_cast<float>(row);
  return difference * difference;
}

}  // namespace search
