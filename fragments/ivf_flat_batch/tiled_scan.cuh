// SPDX-License-Identifier: Apache-2.0
// The distances between the vectors of each list and the queries that probe it, tile by tile.
#pragma once

#include "group_distance.cuh"
#include "tile.cuh"

namespace ivf_flat {

// A NaN, which is no candidate: the distance of what the filter keeps out, and of places without a vector.
__device__ __forceinline__ float no_candidate() { return __uint_as_float(0x7fc00000u); }

// What a block knows of the queries of its tile, in shared memory before their components.
struct tile_queries {
  uint64_t places[queries_per_tile];  // where the distances of the list begin
  uint32_t numbers[queries_per_tile];
  float norms[queries_per_tile];
};

// The norms of the queries of a tile, whose chunks are transposed: chunk c of query q is number
// c × queries_per_tile + q.
template <typename T, int Veclen, typename AccT>
__device__ __forceinline__ void write_norms(const packed_t<T, Veclen>* chunks, uint32_t num_chunks, float* norms) {
#pragma unroll 1
  for (uint32_t q = threadIdx.x / warp_size; q < queries_per_tile; q += warps_per_block) {
    AccT squares = 0;
    for (uint32_t c = lane_index(); c < num_chunks; c += warp_size) {
      const packed_t<T, Veclen> chunk = chunks[c * queries_per_tile + q];
      squares = element<T>::add_product(squares, chunk, chunk);
    }
#pragma unroll
    for (uint32_t offset = warp_size / 2; offset > 0; offset /= 2) {
      squares += __shfl_xor_sync(all_lanes, squares, offset);
    }
    if (lane_index() == 0) { norms[q] = sqrtf(static_cast<float>(squares)); }
  }
}

// Writes the distances between the queries of a tile and the groups `group`, `group` + 1, … of a list, one vector of
// each group a lane. The first `count` queries are the tile's; the others repeat one of them, and are not written.
template <typename T, typename AccT, int Veclen, bool ComputeNorm>
__device__ __forceinline__ void scan_groups(const inverted_lists<packed_t<T, Veclen>>& lists, uint32_t list,
                                            uint32_t group, const tile_queries& queries,
                                            const packed_t<T, Veclen>* chunks, uint32_t num_chunks, uint32_t count,
                                            const void* filter_data, float* distances) {
  using chunk = packed_t<T, Veclen>;
  const uint32_t size = __ldg(lists.sizes + list);
  const uint32_t first = __ldg(lists.groups + list);
  const uint32_t groups = divide_up(size, warp_size);
  if (group >= groups) { return; }

  const chunk* own[groups_per_warp];
  chunk next[groups_per_warp];
  AccT sums[groups_per_warp][queries_per_tile];
  AccT squares[groups_per_warp];
#pragma unroll
  for (uint32_t g = 0; g < groups_per_warp; ++g) {
    // Beyond the list's last group that one is read again, and its distances are not written.
    const uint64_t from = first + (group + g < groups ? group + g : groups - 1);
    own[g] = lists.vectors + from * num_chunks * warp_size + lane_index();
    next[g] = __ldg(own[g]);
    squares[g] = 0;
#pragma unroll
    for (uint32_t q = 0; q < queries_per_tile; ++q) { sums[g][q] = 0; }
  }

#pragma unroll 1  // a step has hundreds of instructions
  for (uint32_t c = 0; c < num_chunks; ++c) {
    chunk now[groups_per_warp];
#pragma unroll
    for (uint32_t g = 0; g < groups_per_warp; ++g) {
      now[g] = next[g];
      own[g] += warp_size;
      if (c + 1 < num_chunks) { next[g] = __ldg(own[g]); }  // on its way while this step computes
      if constexpr (ComputeNorm) { squares[g] = element<T>::add_product(squares[g], now[g], now[g]); }
    }
#pragma unroll
    for (uint32_t q = 0; q < queries_per_tile; ++q) {
      const chunk query = chunks[c * queries_per_tile + q];
#pragma unroll
      for (uint32_t g = 0; g < groups_per_warp; ++g) {
        sums[g][q] = accumulate<T, AccT, Veclen>(sums[g][q], query, now[g]);
      }
    }
  }

#pragma unroll
  for (uint32_t g = 0; g < groups_per_warp; ++g) {
    if (group + g >= groups) { break; }
    const uint32_t number = (group + g) * warp_size + lane_index();
    const uint32_t slot = first * warp_size + number;
#pragma unroll
    for (uint32_t q = 0; q < queries_per_tile; ++q) {
      if (q >= count) { break; }
      float distance = to_distance<T, AccT, Veclen>(sums[g][q]);
      if constexpr (ComputeNorm) {
        distance = over_norms(distance, queries.norms[q], static_cast<float>(squares[g]));
      }
      // A plain load of the id, not __ldg, which CUDA 12 would keep even if no filter uses the id.
      const bool candidate = number < size && filter(queries.numbers[q], lists.ids[slot], filter_data);
      distances[queries.places[q] + number] = candidate ? distance : no_candidate();
    }
  }
}

// Writes the distances of each query from the vectors of the lists that it probes.
//
//   vectors, ids, list_sizes, list_groups, queries, filter_data  as for `interleaved_scan`
//   pairs         the pairs of a query and a probe, numbered query × num_probes + probe, in the order of their lists
//   pair_begins   where in `pairs` those of each list begin, and in entry num_lists where the last ones end
//   tile_begins   the same of the tiles of `tile.cuh`
//   offsets       where in the row of a query the distances of each pair begin: those of a list are 32 for each group,
//                 in the order in which its vectors are stored
//   distances     rows of row_length. NaN where there is no vector, or none that passes the filter; an entry that is
//                 no pair's is left unchanged.
//
// Launch with any grid, block = 256, and 256 + 16 × num_chunks × Veclen × sizeof(T) bytes of dynamic shared memory.
template <typename T, typename AccT, int Veclen, bool ComputeNorm>
__global__ void __launch_bounds__(block_size, 2)
    tiled_scan(const T* __restrict__ vectors, const int64_t* __restrict__ ids, const uint32_t* __restrict__ list_sizes,
               const uint32_t* __restrict__ list_groups, const T* __restrict__ queries,
               const uint32_t* __restrict__ pairs, const uint32_t* __restrict__ pair_begins,
               const uint32_t* __restrict__ tile_begins, const uint32_t* __restrict__ offsets,
               const void* __restrict__ filter_data, float* __restrict__ distances, uint32_t row_length,
               uint32_t num_probes, uint32_t num_lists, uint32_t num_chunks) {
  using chunk = packed_t<T, Veclen>;
  if (blockDim.x != block_size) { __trap(); }
  extern __shared__ uint4 dynamic_shared[];
  tile_queries* const tile_head = reinterpret_cast<tile_queries*>(dynamic_shared);
  chunk* const chunks = reinterpret_cast<chunk*>(tile_head + 1);
  const inverted_lists<chunk> lists = {reinterpret_cast<const chunk*>(vectors), ids, list_sizes, list_groups};
  const uint32_t tiles = __ldg(tile_begins + num_lists);
#pragma unroll 1
  for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const uint32_t list = find_list(tile_begins, num_lists, tile);
    const uint32_t first_pair = __ldg(pair_begins + list);
    const uint32_t probing = __ldg(pair_begins + list + 1) - first_pair;
    // Tiles of the same groups follow one another: what one block has read, those beside it find in the L2.
    const uint32_t query_tiles = divide_up(probing, queries_per_tile);
    const uint32_t within = tile - __ldg(tile_begins + list);
    const uint32_t first_group = within / query_tiles * groups_per_tile;
    const uint32_t first_query = within % query_tiles * queries_per_tile;
    const uint32_t count = probing - first_query < queries_per_tile ? probing - first_query : queries_per_tile;

    __syncthreads();  // all have done with the tile before
    if (threadIdx.x < queries_per_tile) {
      const uint32_t chosen = threadIdx.x < count ? threadIdx.x : count - 1;
      const uint32_t pair = __ldg(pairs + first_pair + first_query + chosen);
      const uint32_t query = pair / num_probes;
      tile_head->numbers[threadIdx.x] = query;
      tile_head->places[threadIdx.x] = static_cast<uint64_t>(query) * row_length + __ldg(offsets + pair);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < queries_per_tile * num_chunks; i += block_size) {
      const uint64_t query = tile_head->numbers[i % queries_per_tile];
      chunks[i] = __ldg(reinterpret_cast<const chunk*>(queries) + query * num_chunks + i / queries_per_tile);
    }
    __syncthreads();
    if constexpr (ComputeNorm) {
      write_norms<T, Veclen, AccT>(chunks, num_chunks, tile_head->norms);
      __syncthreads();
    }
    scan_groups<T, AccT, Veclen, ComputeNorm>(lists, list,
                                              first_group + threadIdx.x / warp_size * groups_per_warp, *tile_head,
                                              chunks, num_chunks, count, filter_data, distances);
  }
}

}  // namespace ivf_flat
