// SPDX-License-Identifier: Apache-2.0
// Inner product, negated: the most similar vector has the smallest distance.
#pragma once

#include "metric.cuh"

namespace ivf_flat {

template <typename T, typename AccT, int Veclen>
__device__ AccT accumulate(AccT sum, packed_t<T, Veclen> query, packed_t<T, Veclen> vector) {
  return element<T>::add_product(sum, query, vector);
}

// The sum stays what it is in AccT, which is unsigned for uint8_t, and is negated as a float: that holds the negative
// of every uint32_t, exactly up to 2²⁴ and rounded to 24 bits above.
template <typename T, typename AccT, int Veclen>
__device__ float to_distance(AccT sum) {
  return -static_cast<float>(sum);
}

}  // namespace ivf_flat
