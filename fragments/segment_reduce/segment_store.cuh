// SPDX-License-Identifier: Apache-2.0
// Interface of the group `segment_store`: how a reduction writes a row. It is included before a caller's own source,
// which defines the overload of the kernel's data type and `veclen`, in the global namespace:
//
//   __device__ void segment_store(float* output, unsigned long long row, unsigned int column, unsigned int width,
//                                 const float (&value)[4], void* info) {
//     segment_reduce::store_vector<4>(output + row * width + column, value);
//   }
#pragma once

#include "vectors.cuh"

// Takes `value` as columns `column` to `column + V - 1` of a row. Called once for each of them, of empty rows too, by
// any thread.
//
//   output  the kernel's `output`, unchanged
//   row     0 to rows - 1
//   column  0 to width - V, a multiple of V
//   width   columns of a row, a multiple of V
//   value   the result in float, not yet rounded to the data type
//   info    the kernel's `store_info`, unchanged
extern __device__ void segment_store(float*, unsigned long long, unsigned, unsigned, const float (&)[1], void*);
extern __device__ void segment_store(float*, unsigned long long, unsigned, unsigned, const float (&)[2], void*);
extern __device__ void segment_store(float*, unsigned long long, unsigned, unsigned, const float (&)[4], void*);
extern __device__ void segment_store(__half*, unsigned long long, unsigned, unsigned, const float (&)[1], void*);
extern __device__ void segment_store(__half*, unsigned long long, unsigned, unsigned, const float (&)[2], void*);
extern __device__ void segment_store(__half*, unsigned long long, unsigned, unsigned, const float (&)[4], void*);
extern __device__ void segment_store(__half*, unsigned long long, unsigned, unsigned, const float (&)[8], void*);
extern __device__ void segment_store(__nv_bfloat16*, unsigned long long, unsigned, unsigned, const float (&)[1], void*);
extern __device__ void segment_store(__nv_bfloat16*, unsigned long long, unsigned, unsigned, const float (&)[2], void*);
extern __device__ void segment_store(__nv_bfloat16*, unsigned long long, unsigned, unsigned, const float (&)[4], void*);
extern __device__ void segment_store(__nv_bfloat16*, unsigned long long, unsigned, unsigned, const float (&)[8], void*);
