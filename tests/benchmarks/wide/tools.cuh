#pragma once
#include "calls.cuh"
#include <cuda/std/tuple>
#include <cuda/std/utility>
namespace wide {
template <typename T> __device__ inline float as_float(T x) { return static_cast<float>(x); }
template <> __device__ inline float as_float<__half>(__half x) { return __half2float(x); }
template <typename T, int N> struct alignas(sizeof(T) * (N & -N)) pack { T v[N]; };
template <typename F> __device__ __forceinline__ void times(int n, F f) { for (int i = 0; i < n; i++) f(i); }
__device__ inline float across(float x) {
  for (int step = 16; step; step >>= 1) x += __shfl_xor_sync(~0u, x, step);
  return x;
}
template <int N> struct best {
  float key[N]; uint32_t row[N];
  __device__ void clear() { times(N, [&](int i) { key[i] = 1e30f; row[i] = ~0u; }); }
  __device__ void add(float k, uint32_t r) {
    times(N, [&](int i) {
      if (before(k, key[i])) { float t = key[i]; key[i] = k; k = t; uint32_t s = row[i]; row[i] = r; r = s; }
    });
  }
};
}
