// SPDX-License-Identifier: Apache-2.0
// Interface of the group `segment_load`: how a reduction reads an element. It is included before a caller's own source,
// which defines the overload of the kernel's data type and `veclen`, in the global namespace:
//
//   __device__ void segment_load(const float* values, unsigned long long element, unsigned int column,
//                                unsigned int width, void* info, float (&value)[4]) {
//     segment_reduce::load_vector<4>(values, element * width + column, value);
//   }
#pragma once

#include "vectors.cuh"

// Sets `value` to columns `column` to `column + V - 1` of an element, in float. Called at least once for each of them,
// by any thread; it must give the same again.
//
//   values   the kernel's `values`, unchanged; may be null where the function reads something else
//   element  0 to offsets[rows] - 1
//   column   0 to width - V, a multiple of V
//   width    columns of an element and of a row, a multiple of V
//   info     the kernel's `load_info`, unchanged
extern __device__ void segment_load(const float*, unsigned long long, unsigned, unsigned, void*, float (&)[1]);
extern __device__ void segment_load(const float*, unsigned long long, unsigned, unsigned, void*, float (&)[2]);
extern __device__ void segment_load(const float*, unsigned long long, unsigned, unsigned, void*, float (&)[4]);
extern __device__ void segment_load(const __half*, unsigned long long, unsigned, unsigned, void*, float (&)[1]);
extern __device__ void segment_load(const __half*, unsigned long long, unsigned, unsigned, void*, float (&)[2]);
extern __device__ void segment_load(const __half*, unsigned long long, unsigned, unsigned, void*, float (&)[4]);
extern __device__ void segment_load(const __half*, unsigned long long, unsigned, unsigned, void*, float (&)[8]);
extern __device__ void segment_load(const __nv_bfloat16*, unsigned long long, unsigned, unsigned, void*, float (&)[1]);
extern __device__ void segment_load(const __nv_bfloat16*, unsigned long long, unsigned, unsigned, void*, float (&)[2]);
extern __device__ void segment_load(const __nv_bfloat16*, unsigned long long, unsigned, unsigned, void*, float (&)[4]);
extern __device__ void segment_load(const __nv_bfloat16*, unsigned long long, unsigned, unsigned, void*, float (&)[8]);
