// SPDX-License-Identifier: Apache-2.0
// Interface of the group `user_transform`, which the caller defines: it is included before the caller's source, so a
// definition with a different return type or with C linkage is a compile error.
#pragma once

// Returns the new value of one element. Define the overload for the kernel's data type, or both:
//
//   __device__ float user_transform(float x) { return x * x + 1.0f; }
//
// It is in the global namespace, so that a plain function is a complete source.
extern __device__ float user_transform(float x);
extern __device__ double user_transform(double x);
