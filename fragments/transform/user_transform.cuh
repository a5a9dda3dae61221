// SPDX-License-Identifier: Apache-2.0
// Interface of the group `user_transform`, which the caller defines: it is included before the caller's source, so a
// definition with another return type or with C linkage is a compile error there.
#pragma once

// The new value of one element. Define the overload for the data type of the kernel, or both:
//
//   __device__ float user_transform(float x) { return x * x + 1.0f; }
//
// In the global namespace, so that the caller's source is a plain function and no more.
extern __device__ float user_transform(float x);
extern __device__ double user_transform(double x);
