// SPDX-License-Identifier: Apache-2.0
// The square root: turns a squared Euclidean distance into the distance.
#pragma once

#include "post_lambda.cuh"

namespace ivf_flat {

__device__ float post_lambda(float distance) { return sqrtf(distance); }

}  // namespace ivf_flat
