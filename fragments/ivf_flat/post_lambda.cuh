// SPDX-License-Identifier: Apache-2.0
// Interface of the group `post_lambda`: what the kernel calls and what each fragment of the group defines.
#pragma once

namespace ivf_flat {

// What is written for a distance. It is applied to results only, after they were selected, and so must not turn the
// order of two distances round.
extern __device__ float post_lambda(float distance);

}  // namespace ivf_flat
