// SPDX-License-Identifier: Apache-2.0
// The centre of each list: the mean of its vectors, or, of a list that is too short, moved to where there are many.
#pragma once

#include "scan_lists.cuh"

namespace ivf_flat {

// Components that a block sums up at once, and those of a lane.
constexpr uint32_t components_at_once = 128;
constexpr uint32_t components_per_lane = components_at_once / warp_size;
// A short list keeps the weight of so many of its vectors at most.
constexpr uint32_t most_weight = 7;
constexpr uint32_t most_tries = 64;

// Returns a number below `count`, any, and the same for the same seed (the finalizer of MurmurHash3).
__device__ __forceinline__ uint32_t draw(uint32_t seed, uint32_t count) {
  seed = (seed ^ seed >> 16) * 0x85ebca6bu;
  seed = (seed ^ seed >> 13) * 0xc2b2ae35u;
  return static_cast<uint32_t>(static_cast<uint64_t>(seed ^ seed >> 16) * count >> 32);
}

// Returns a vector of a list that is at least as long as the average; no_list if tries find none.
__device__ __forceinline__ uint32_t draw_of_long(const uint32_t* labels, const uint32_t* begins, uint32_t num_rows,
                                                 uint32_t num_lists, uint32_t parts, uint32_t seed) {
#pragma unroll 1
  for (uint32_t i = 0; i < most_tries; ++i) {
    const uint32_t row = draw(seed + i * 0x9e3779b9u, num_rows);
    const uint64_t list = __ldg(labels + row);
    if (list == no_list) { continue; }
    const uint64_t count = __ldg(begins + (list + 1) * parts) - __ldg(begins + list * parts);
    if (count * num_lists >= num_rows) { return row; }
  }
  return no_list;
}

// Replaces the centre of each list by the mean of its vectors, and writes its squared norm; a list without vectors
// keeps its centre. Balanced clustering: that of a list of fewer than `least` moves on towards a vector x of a long
// list, to (c w + x) / (w + 1), where w is the number of its vectors, at most 7. `order` has the vectors list by list,
// those of a list from begins[list × parts] on. The same vectors are summed in the same order every time.
//
// Launch with a block per list, of 32 × n threads, at least 128, and 16 bytes of dynamic shared memory for each thread.
__global__ void __launch_bounds__(1024)
    average_rows(const float* __restrict__ rows, const uint32_t* __restrict__ order,
                 const uint32_t* __restrict__ begins, const uint32_t* __restrict__ labels, float* __restrict__ centres,
                 float* __restrict__ squares, uint32_t num_rows, uint32_t dim, uint32_t num_lists, uint32_t parts,
                 uint32_t least, uint32_t seed) {
  const uint64_t list = blockIdx.x;
  const uint32_t warps = blockDim.x / warp_size;
  const uint32_t begin = __ldg(begins + list * parts);
  const uint32_t end = __ldg(begins + (list + 1) * parts);
  const uint32_t count = end - begin;
  const uint32_t drawn =
      count < least ? draw_of_long(labels, begins, num_rows, num_lists, parts, seed ^ blockIdx.x * 0x632be5abu)
                    : no_list;
  const float weight = static_cast<float>(count < most_weight ? count : most_weight);
  extern __shared__ uint4 dynamic_shared[];
  float* const sums = reinterpret_cast<float*>(dynamic_shared);  // of each warp
  float square = 0;
#pragma unroll 1
  for (uint32_t first = 0; first < dim; first += components_at_once) {
    float own[components_per_lane] = {};
#pragma unroll 4
    for (uint32_t i = begin + threadIdx.x / warp_size; i < end; i += warps) {
      const float* const row = rows + static_cast<uint64_t>(__ldg(order + i)) * dim;
#pragma unroll
      for (uint32_t j = 0; j < components_per_lane; ++j) {
        const uint32_t c = first + j * warp_size + lane_index();
        if (c < dim) { own[j] += __ldg(row + c); }
      }
    }
    __syncthreads();  // the sums of the components before have been read
#pragma unroll
    for (uint32_t j = 0; j < components_per_lane; ++j) {
      sums[threadIdx.x / warp_size * components_at_once + j * warp_size + lane_index()] = own[j];
    }
    __syncthreads();
    const uint32_t c = first + threadIdx.x;
    if (threadIdx.x < components_at_once && c < dim) {
      float sum = 0;
      for (uint32_t w = 0; w < warps; ++w) { sum += sums[w * components_at_once + threadIdx.x]; }
      float* const centre = centres + list * dim + c;
      float value = count > 0 ? sum / static_cast<float>(count) : *centre;
      if (drawn != no_list) {
        // A centre without vectors may be no number, and leaves no trace.
        const float kept = count > 0 ? value * weight : 0.0f;
        value = (kept + __ldg(rows + static_cast<uint64_t>(drawn) * dim + c)) / (weight + 1.0f);
      }
      *centre = value;
      square += value * value;
    }
  }
  __syncthreads();
  if (threadIdx.x < components_at_once) { sums[threadIdx.x] = square; }
  __syncthreads();
  if (threadIdx.x >= warp_size) { return; }
  float total = 0;
#pragma unroll
  for (uint32_t j = 0; j < components_per_lane; ++j) { total += sums[j * warp_size + lane_index()]; }
#pragma unroll
  for (uint32_t offset = warp_size / 2; offset > 0; offset /= 2) {
    total += __shfl_xor_sync(all_lanes, total, offset);
  }
  if (lane_index() == 0) { squares[list] = total; }
}

}  // namespace ivf_flat
