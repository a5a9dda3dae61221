// SPDX-License-Identifier: Apache-2.0
// Two steps, composed: turns the negated cosine similarity into the cosine distance, 1 − similarity.
#pragma once

#include "post_lambda.cuh"

namespace ivf_flat {

// Static: internal to the fragment, whose only symbol is `post_lambda`.
static __device__ float negate(float x) { return -x; }
static __device__ float one_minus(float x) { return 1.0f - x; }

__device__ float post_lambda(float distance) { return one_minus(negate(distance)); }

}  // namespace ivf_flat
