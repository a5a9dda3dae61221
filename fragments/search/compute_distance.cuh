// SPDX-License-Identifier: Apache-2.0
// Interface of the group `compute_distance`: what the kernel calls and what each fragment of the group defines.
#pragma once

#include "types.cuh"

namespace search {

// Returns the contribution of one pair of elements to the distance between a query and a row. The kernel sums the
// contributions of all elements in its output type. Smaller is closer, so a similarity returns its negative.
template <typename T>
extern __device__ float compute_distance(T query, T row);

}  // namespace search
