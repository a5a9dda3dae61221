// SPDX-License-Identifier: Apache-2.0
// One thread per query: short, and the baseline that `search_optimized.cuh` is measured against.
#pragma once

#include "apply_filter.cuh"
#include "candidate.cuh"
#include "compute_distance.cuh"
#include "vector_load.cuh"

namespace search {

// Returns the distance of one row, computed Veclen elements at a time. The threads of a warp read the same row in one
// broadcast access; their queries differ, and come from the L1 cache.
template <int Veclen, int Access, typename OutT, typename T>
__device__ __forceinline__ OutT row_distance(const T* query, const T* row, uint32_t dim) {
  OutT sum = 0;
  const uint32_t whole = dim - dim % Veclen;
  uint32_t k = 0;
#pragma unroll 1  // a step already processes Veclen elements
  for (; k < whole; k += Veclen) {
    T query_elements[Veclen];
    T row_elements[Veclen];
    load<Access>(query + k, query_elements);
    load<Access>(row + k, row_elements);
#pragma unroll
    for (int i = 0; i < Veclen; ++i) {
      sum += static_cast<OutT>(compute_distance<T>(query_elements[i], row_elements[i]));
    }
  }
#pragma unroll 1  // a short tail is not worth the registers
  for (; k < dim; ++k) {
    sum += static_cast<OutT>(compute_distance<T>(__ldg(query + k), __ldg(row + k)));
  }
  return sum;
}

// Scans all rows for the queries of one thread.
template <int Veclen, int Access, typename T, typename OutT, typename IdxT>
__device__ __forceinline__ void search_standard(const T* dataset, const T* queries, IdxT* indices, OutT* distances,
                                                IdxT num_rows, uint32_t num_queries, uint32_t dim,
                                                const void* filter_data) {
  // 64-bit counters: a 32-bit one could wrap around in the last step of its loop.
  const uint64_t stride = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t query = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; query < num_queries;
       query += stride) {
    auto best = no_candidate<OutT, IdxT>();
    for (IdxT index = 0; index < num_rows; ++index) {
      if (!apply_filter<IdxT>(static_cast<uint32_t>(query), index, filter_data)) { continue; }
      const OutT distance = row_distance<Veclen, Access, OutT>(
          queries + query * dim, dataset + static_cast<uint64_t>(index) * dim, dim);
      best = closer<OutT, IdxT>(best, {distance, index});
    }
    indices[query] = best.index;
    distances[query] = best.distance;
  }
}

}  // namespace search
