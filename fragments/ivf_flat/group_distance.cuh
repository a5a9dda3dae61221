// SPDX-License-Identifier: Apache-2.0
// The distances between a query and the 32 vectors of a group, one per lane.
#pragma once

#include "metric.cuh"
#include "warp.cuh"

namespace ivf_flat {

// Chunks that a lane has in flight. More of them cost registers, and so warps: together these hide the memory's latency
// best (tried with 2, 4 and 8 of 16 bytes on an H200).
template <typename Packed>
constexpr uint32_t chunks_at_once = sizeof(Packed) == 16 ? 2 : 4;

// The negated inner product divided by both norms is the negated cosine similarity. The distance of a zero vector, which
// has no direction, is left unchanged.
__device__ __forceinline__ float over_norms(float distance, float query_norm, float vector_squares) {
  const float norms = query_norm * sqrtf(vector_squares);
  return norms > 0.0f ? distance / norms : distance;
}

// The sums of a lane over the chunks of a vector.
template <typename T, typename AccT, int Veclen, bool ComputeNorm>
struct sums {
  AccT distance = 0;
  AccT squares = 0;

  __device__ __forceinline__ void add(packed_t<T, Veclen> query, packed_t<T, Veclen> vector) {
    distance = accumulate<T, AccT, Veclen>(distance, query, vector);
    if constexpr (ComputeNorm) { squares = element<T>::add_product(squares, vector, vector); }
  }
};

// `group` is where the group begins, `query` the query in shared memory. Vectors of a group are stored chunk by chunk,
// and a chunk of one vector beside that of the next, so that a warp reads 32 neighbouring chunks at once.
template <typename T, typename AccT, int Veclen, bool ComputeNorm>
__device__ __forceinline__ float group_distance(const packed_t<T, Veclen>* group, const packed_t<T, Veclen>* query,
                                                uint32_t num_chunks, float query_norm) {
  constexpr uint32_t step = chunks_at_once<packed_t<T, Veclen>>;
  const packed_t<T, Veclen>* own = group + lane_index();
  sums<T, AccT, Veclen, ComputeNorm> sum;
  uint32_t left = num_chunks;
#pragma unroll 1  // a step already processes several chunks
  for (; left >= step; left -= step, own += step * warp_size, query += step) {
    packed_t<T, Veclen> chunks[step];
#pragma unroll
    for (uint32_t i = 0; i < step; ++i) { chunks[i] = __ldg(own + i * warp_size); }
#pragma unroll
    for (uint32_t i = 0; i < step; ++i) { sum.add(query[i], chunks[i]); }
  }
#pragma unroll 1
  for (; left > 0; --left, own += warp_size, ++query) { sum.add(*query, __ldg(own)); }
  const float distance = to_distance<T, AccT, Veclen>(sum.distance);
  return ComputeNorm ? over_norms(distance, query_norm, static_cast<float>(sum.squares)) : distance;
}

// Returns the Euclidean norm of the query, in all lanes of the warp.
template <typename T, typename AccT, int Veclen>
__device__ __forceinline__ float norm(const packed_t<T, Veclen>* query, uint32_t num_chunks) {
  AccT squares = 0;
  for (uint32_t c = lane_index(); c < num_chunks; c += warp_size) {
    squares = element<T>::add_product(squares, query[c], query[c]);
  }
#pragma unroll
  for (uint32_t offset = warp_size / 2; offset > 0; offset /= 2) {
    squares += __shfl_xor_sync(all_lanes, squares, offset);
  }
  return sqrtf(static_cast<float>(squares));
}

}  // namespace ivf_flat
