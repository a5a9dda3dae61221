// SPDX-License-Identifier: Apache-2.0
// Interface of the group `filter`: what the kernel calls and what each fragment of the group defines.
#pragma once

#include "types.cuh"

namespace ivf_flat {

// Returns whether the vector `id` may be a result of query number `query`. `filter_data` is passed through from the
// kernel's parameter; each filter documents what it points to.
extern __device__ bool filter(uint32_t query, int64_t id, const void* filter_data);

}  // namespace ivf_flat
