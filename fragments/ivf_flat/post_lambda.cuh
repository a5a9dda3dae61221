// SPDX-License-Identifier: Apache-2.0
// Interface of the group `post_lambda`: what the kernel calls and what each fragment of the group defines.
#pragma once

namespace ivf_flat {

// Returns the value to write for a distance. It is applied to results only, after the selection, so it must not reverse
// the order of two distances.
extern __device__ float post_lambda(float distance);

}  // namespace ivf_flat
