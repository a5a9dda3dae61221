// SPDX-License-Identifier: Apache-2.0
// Interface of the group `apply_filter`: what the kernel calls and what each fragment of the group defines.
#pragma once

#include "types.cuh"

namespace search {

// Returns whether `row` may be a result of query number `query`. `filter_data` is passed through from the kernel's
// parameter; each filter documents what it points to. Threads may ask about any row of the dataset, in any order.
template <typename IdxT>
extern __device__ bool apply_filter(uint32_t query, IdxT row, const void* filter_data);

}  // namespace search
