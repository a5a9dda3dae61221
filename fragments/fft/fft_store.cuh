// SPDX-License-Identifier: Apache-2.0
// Interface of the group `fft_store`: how a transform writes an element. It is included before a caller's own source, so
// a definition with other types is an error. It is in the global namespace, so that a plain function is enough:
//
//   __device__ void fft_store(float2* data, unsigned int row, unsigned int index, unsigned int length, float2 value,
//                             void* info) {
//     data[(unsigned long long)row * length + index] = value;
//   }
//
// Define the overload of the data that the transform writes: complex elements, or real ones for complex-to-real.
#pragma once

struct __half;  // include <cuda_fp16.h> to use these
struct __half2;

// Takes `value` as element `index` of row number `row`. Called once for each element of each row, in any order and by any
// thread; all elements of the row have been read before.
//
//   data    the kernel's `output`, unchanged
//   row     0 to batch - 1
//   index   0 to length - 1
//   length  elements of a row: the size of the transform; size / 2 + 1 for real-to-complex
//   value   in the type that the kernel computes with: float for __half
//   info    the kernel's `store_info`, unchanged
extern __device__ void fft_store(float2* data, unsigned int row, unsigned int index, unsigned int length, float2 value,
                                 void* info);
extern __device__ void fft_store(float* data, unsigned int row, unsigned int index, unsigned int length, float value,
                                 void* info);
extern __device__ void fft_store(double2* data, unsigned int row, unsigned int index, unsigned int length,
                                 double2 value, void* info);
extern __device__ void fft_store(double* data, unsigned int row, unsigned int index, unsigned int length, double value,
                                 void* info);
extern __device__ void fft_store(__half2* data, unsigned int row, unsigned int index, unsigned int length, float2 value,
                                 void* info);
extern __device__ void fft_store(__half* data, unsigned int row, unsigned int index, unsigned int length, float value,
                                 void* info);
