// SPDX-License-Identifier: Apache-2.0
// Interface of the group `filter`: what the kernel calls and what each fragment of the group defines.
#pragma once

#include "types.cuh"

namespace ivf_flat {

// Whether the vector `id` may be an answer to query number `query`. `filter_data` is the kernel's parameter, handed
// through as it is: each filter says what it points to.
extern __device__ bool filter(uint32_t query, int64_t id, const void* filter_data);

}  // namespace ivf_flat
