// SPDX-License-Identifier: Apache-2.0
// Interface of the group `metric`: what the kernel calls and what each fragment of the group defines.
#pragma once

#include "packed.cuh"

namespace ivf_flat {

// Adds the contribution of Veclen components to a sum that starts from zero. If a dimension is not a multiple of Veclen,
// query and vector are padded with zeros, and two zeros must contribute nothing.
template <typename T, typename AccT, int Veclen>
extern __device__ AccT accumulate(AccT sum, packed_t<T, Veclen> query, packed_t<T, Veclen> vector);

// Returns the distance for a complete sum. Smaller is nearer, so a similarity returns its negative.
template <typename T, typename AccT, int Veclen>
extern __device__ float to_distance(AccT sum);

}  // namespace ivf_flat
