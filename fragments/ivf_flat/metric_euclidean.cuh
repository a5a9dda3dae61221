// SPDX-License-Identifier: Apache-2.0
// Squared Euclidean distance (L2). It orders vectors like its root, which `post_lambda_sqrt` applies to the results.
#pragma once

#include "metric.cuh"

namespace ivf_flat {

template <typename T, typename AccT, int Veclen>
__device__ AccT accumulate(AccT sum, packed_t<T, Veclen> query, packed_t<T, Veclen> vector) {
  return element<T>::add_squared_difference(sum, query, vector);
}

template <typename T, typename AccT, int Veclen>
__device__ float to_distance(AccT sum) {
  return static_cast<float>(sum);
}

}  // namespace ivf_flat
