// SPDX-License-Identifier: Apache-2.0
// The scan of the lists that a query probes: the entry point of the family.
#pragma once

#include "results.cuh"
#include "scan_lists.cuh"

namespace ivf_flat {

// Finds, for each query, the best vectors in the lists that it probes, among those that pass the filter.
//
//   vectors        the lists, each of whole groups of 32 vectors. Component d of vector v of a group is at
//                  ((d / Veclen) × 32 + v) × Veclen + d % Veclen. A vector has num_chunks × Veclen components,
//                  padded with zeros; unused places of a list's last group may hold anything. Aligned to 16 bytes.
//   ids            the id of the vector in each slot (32 × group + v)
//   list_sizes     the number of vectors in each list
//   list_groups    the first group of each list
//   queries        a row of num_chunks × Veclen components per query, padded with zeros. Aligned to 16 bytes.
//   probes         for each query num_probes lists, or no_list
//   probe_offsets  for capacity 0 only, else null: where in the row the list of each query and probe begins
//   filter_data    as the linked filter documents; null if the filter does not read it
//   distances,     results in rows of row_length. Where there is no candidate, the distance is ∞ (−∞ for
//   neighbours     order::descending) and the neighbour −1.
//
// Capacity > 0: block b of a query takes its probes b, b + blocks_per_query, …, or, where blocks_per_query is a multiple
// of num_probes, a share of one, and writes a row of its own, number query × blocks_per_query + b: its row_length best,
// the best first; row_length ≤ Capacity. The caller merges the rows of a query.
// Capacity 0: no selection. A query has one row, to which its blocks write all distances, 32 for each group of a
// list, in the order in which they are stored. The rest of the row is left unchanged.
//
// Launch with grid = queries × blocks_per_query, block = 256, and num_chunks × Veclen × sizeof(T) bytes of dynamic
// shared memory. Work is spread over warps group by group, so that short lists do not leave warps idle.
//
// Without the number of blocks, ptxas saves registers down to 40, and issues a load only once the last one is used.
template <int Capacity, order Order, typename T, typename AccT, int Veclen, bool ComputeNorm>
__global__ void __launch_bounds__(block_size, 4)
    interleaved_scan(const T* __restrict__ vectors, const int64_t* __restrict__ ids,
                     const uint32_t* __restrict__ list_sizes, const uint32_t* __restrict__ list_groups,
                     const T* __restrict__ queries, const uint32_t* __restrict__ probes,
                     const uint32_t* __restrict__ probe_offsets, const void* __restrict__ filter_data,
                     float* __restrict__ distances, int64_t* __restrict__ neighbours, uint32_t num_probes,
                     uint32_t blocks_per_query, uint32_t num_chunks, uint32_t row_length) {
  using chunk = packed_t<T, Veclen>;
  // A shuffle with lanes that the block does not have is undefined: stop instead of giving a wrong result.
  if (blockDim.x != block_size) { __trap(); }
  const uint32_t query = blockIdx.x / blocks_per_query;
  const uint32_t part = blockIdx.x % blocks_per_query;
  const inverted_lists<chunk> lists = {reinterpret_cast<const chunk*>(vectors), ids, list_sizes, list_groups};
  const uint64_t first_probe = static_cast<uint64_t>(query) * num_probes;

  extern __shared__ uint4 dynamic_shared[];
  chunk* const query_chunks = reinterpret_cast<chunk*>(dynamic_shared);
  const chunk* const own_query = reinterpret_cast<const chunk*>(queries) + static_cast<uint64_t>(query) * num_chunks;
  for (uint32_t c = threadIdx.x; c < num_chunks; c += block_size) { query_chunks[c] = __ldg(own_query + c); }
  __syncthreads();

  if constexpr (Capacity == 0) {
    const uint64_t row = static_cast<uint64_t>(query) * row_length;
    all_results<Order> results = {ids, probe_offsets + first_probe, distances + row, neighbours + row};
    scan_lists<T, AccT, Veclen, ComputeNorm>(lists, query, query_chunks, num_chunks, probes + first_probe, num_probes,
                                             part, blocks_per_query, filter_data, results);
  } else {
    __shared__ uint64_t keys[warps_per_block][selection<Capacity>::shared_keys];
    best_results<Capacity, Order> results(keys[threadIdx.x / warp_size]);
    scan_lists<T, AccT, Veclen, ComputeNorm>(lists, query, query_chunks, num_chunks, probes + first_probe, num_probes,
                                             part, blocks_per_query, filter_data, results);
    const uint64_t row = static_cast<uint64_t>(blockIdx.x) * row_length;
    results.write(keys, ids, distances + row, neighbours + row, row_length);
  }
}

}  // namespace ivf_flat
