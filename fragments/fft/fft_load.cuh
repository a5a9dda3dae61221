// SPDX-License-Identifier: Apache-2.0
// Interface of the group `fft_load`: how a transform reads an element. It is included before a caller's own source, so a
// definition with other types is an error. It is in the global namespace, so that a plain function is enough:
//
//   __device__ float2 fft_load(const float2* data, unsigned int row, unsigned int index, unsigned int length,
//                              void* info) {
//     return data[(unsigned long long)row * length + index];
//   }
//
// Define the overload of the data that the transform reads: complex elements, or real ones for real-to-complex.
#pragma once

struct __half;  // include <cuda_fp16.h> to use these
struct __half2;

// Returns element `index` of row `row`. Called once for each element of each row, in any order and by any thread.
//
//   data    the kernel's `input`, unchanged
//   row     0 to batch - 1
//   index   0 to length - 1
//   length  elements of a row: the size of the transform; size / 2 + 1 for complex-to-real
//   info    the kernel's `load_info`, unchanged
//
// The result has the type that the kernel computes with: float for __half. It is not rounded to __half first.
extern __device__ float2 fft_load(const float2* data, unsigned int row, unsigned int index, unsigned int length,
                                  void* info);
extern __device__ float fft_load(const float* data, unsigned int row, unsigned int index, unsigned int length,
                                 void* info);
extern __device__ double2 fft_load(const double2* data, unsigned int row, unsigned int index, unsigned int length,
                                   void* info);
extern __device__ double fft_load(const double* data, unsigned int row, unsigned int index, unsigned int length,
                                  void* info);
extern __device__ float2 fft_load(const __half2* data, unsigned int row, unsigned int index, unsigned int length,
                                  void* info);
extern __device__ float fft_load(const __half* data, unsigned int row, unsigned int index, unsigned int length,
                                 void* info);
