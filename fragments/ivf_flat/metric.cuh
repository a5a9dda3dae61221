// SPDX-License-Identifier: Apache-2.0
// Interface of the group `metric`: what the kernel calls and what each fragment of the group defines.
#pragma once

#include "packed.cuh"

namespace ivf_flat {

// Adds what Veclen components contribute. It starts from zero; where a dimension is no multiple of Veclen, query and
// vector are filled up with zeros, and two zeros must contribute nothing.
template <typename T, typename AccT, int Veclen>
extern __device__ AccT accumulate(AccT sum, packed_t<T, Veclen> query, packed_t<T, Veclen> vector);

// The distance that a whole sum stands for. Smaller is nearer, so a similarity returns its negative.
template <typename T, typename AccT, int Veclen>
extern __device__ float to_distance(AccT sum);

}  // namespace ivf_flat
