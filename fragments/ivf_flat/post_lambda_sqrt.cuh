// SPDX-License-Identifier: Apache-2.0
// The root: makes the Euclidean distance of its square.
#pragma once

#include "post_lambda.cuh"

namespace ivf_flat {

__device__ float post_lambda(float distance) { return sqrtf(distance); }

}  // namespace ivf_flat
