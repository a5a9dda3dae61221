// SPDX-License-Identifier: Apache-2.0
// One block per query: each row is read once, in whole 128-byte lines, by a group of lanes that share its elements.
#pragma once

#include "apply_filter.cuh"
#include "candidate.cuh"
#include "compute_distance.cuh"
#include "vector_load.cuh"

namespace search {

// Plain constexpr, which is internal to the fragment: an `inline` variable would be one of its symbols.
constexpr uint32_t warp_size = 32;
constexpr uint32_t all_lanes = 0xffffffffu;

// Rows that a group loads at once: enough independent loads to hide the latency of memory, and all of them share one
// read of the query's elements.
constexpr int rows_at_once = 4;

// Lanes in a group, a power of two: just enough to read a 128-byte line at once, because each doubling costs one more
// shuffle per row, and no more than the accesses of a short row, so that no lane is idle.
template <int Access, typename T>
__device__ __forceinline__ uint32_t lanes_per_row(uint32_t dim) {
  constexpr uint32_t line = 128 / (Access * sizeof(T));
  constexpr uint32_t most = line < warp_size ? line : warp_size;
  uint32_t lanes = 1;
  while (lanes < most && lanes * Access < dim) { lanes *= 2; }
  return lanes;
}

// Returns the best of the rows that this thread's group scans, in all lanes of the group.
template <int Access, typename T, typename OutT, typename IdxT>
__device__ __forceinline__ candidate<OutT, IdxT> scan_rows(const T* dataset, const T* query_row, uint32_t query,
                                                           IdxT num_rows, uint32_t dim, const void* filter_data) {
  const uint32_t lanes = lanes_per_row<Access, T>(dim);
  const uint32_t groups = blockDim.x / lanes;
  const uint32_t group = threadIdx.x / lanes;
  const uint32_t lane = threadIdx.x % lanes;
  const uint64_t end = num_rows > 0 ? static_cast<uint64_t>(num_rows) : 0;
  auto best = no_candidate<OutT, IdxT>();

  // The bounds of this loop are the same for the whole block: no lane leaves it early and misses a shuffle.
  for (uint64_t first = 0; first < end; first += static_cast<uint64_t>(groups) * rows_at_once) {
    bool passes[rows_at_once];
    const T* rows[rows_at_once];
    OutT sums[rows_at_once];
    bool any_passes = false;
#pragma unroll
    for (int r = 0; r < rows_at_once; ++r) {
      const uint64_t index = first + r * groups + group;
      passes[r] = index < end && apply_filter<IdxT>(query, static_cast<IdxT>(index), filter_data);
      // Instead of an unwanted row, read the query, which is in the cache. This avoids a branch around the loads
      // below, accesses out of bounds, and bandwidth for rows that are filtered out.
      rows[r] = passes[r] ? dataset + index * dim : query_row;
      sums[r] = 0;
      any_passes |= passes[r];
    }
    if (!__any_sync(all_lanes, any_passes)) { continue; }

    for (uint64_t k = lane * Access; k < dim; k += lanes * Access) {
      T query_elements[Access];
      T row_elements[rows_at_once][Access];
      load<Access>(query_row + k, query_elements);
#pragma unroll
      for (int r = 0; r < rows_at_once; ++r) { load<Access>(rows[r] + k, row_elements[r]); }
#pragma unroll
      for (int r = 0; r < rows_at_once; ++r) {
#pragma unroll
        for (int i = 0; i < Access; ++i) {
          sums[r] += static_cast<OutT>(compute_distance<T>(query_elements[i], row_elements[r][i]));
        }
      }
    }

    // A butterfly reduction: all lanes of the group end up with the same sum, to the last bit.
    for (uint32_t offset = lanes / 2; offset > 0; offset /= 2) {
#pragma unroll
      for (int r = 0; r < rows_at_once; ++r) { sums[r] += __shfl_xor_sync(all_lanes, sums[r], offset); }
    }
#pragma unroll
    for (int r = 0; r < rows_at_once; ++r) {
      const IdxT index = static_cast<IdxT>(first + r * groups + group);
      if (passes[r]) { best = closer<OutT, IdxT>(best, {sums[r], index}); }
    }
  }
  return best;
}

// Returns the best candidate of a warp, in all its lanes.
template <typename OutT, typename IdxT>
__device__ __forceinline__ candidate<OutT, IdxT> reduce_warp(candidate<OutT, IdxT> best) {
#pragma unroll
  for (uint32_t offset = warp_size / 2; offset > 0; offset /= 2) {
    best = closer<OutT, IdxT>(best, {__shfl_xor_sync(all_lanes, best.distance, offset),
                                     __shfl_xor_sync(all_lanes, best.index, offset)});
  }
  return best;
}

// Returns the best candidate of the block, in its first warp. Ends with a barrier, so it can be called again.
template <typename OutT, typename IdxT>
__device__ __forceinline__ candidate<OutT, IdxT> reduce_block(candidate<OutT, IdxT> best) {
  __shared__ OutT warp_distances[warp_size];  // one for each warp of the largest block, 1024 threads
  __shared__ IdxT warp_indices[warp_size];
  const uint32_t warp = threadIdx.x / warp_size;
  const uint32_t lane = threadIdx.x % warp_size;
  best = reduce_warp<OutT, IdxT>(best);
  if (lane == 0) {
    warp_distances[warp] = best.distance;
    warp_indices[warp] = best.index;
  }
  __syncthreads();
  if (warp == 0) {
    best = no_candidate<OutT, IdxT>();
    if (lane < blockDim.x / warp_size) { best = {warp_distances[lane], warp_indices[lane]}; }
    best = reduce_warp<OutT, IdxT>(best);
  }
  __syncthreads();
  return best;
}

// Scans all rows for the queries of one block.
template <int Access, typename T, typename OutT, typename IdxT>
__device__ __forceinline__ void search_optimized(const T* dataset, const T* queries, IdxT* indices, OutT* distances,
                                                 IdxT num_rows, uint32_t num_queries, uint32_t dim,
                                                 const void* filter_data) {
  // A shuffle with lanes that the block does not have is undefined: stop instead of giving a wrong result.
  if (blockDim.x % warp_size != 0) { __trap(); }
  for (uint64_t query = blockIdx.x; query < num_queries; query += gridDim.x) {
    const auto best = reduce_block<OutT, IdxT>(scan_rows<Access, T, OutT, IdxT>(
        dataset, queries + query * dim, static_cast<uint32_t>(query), num_rows, dim, filter_data));
    if (threadIdx.x == 0) {
      indices[query] = best.index;
      distances[query] = best.distance;
    }
  }
}

}  // namespace search
