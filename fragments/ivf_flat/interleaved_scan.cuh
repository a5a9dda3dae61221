// SPDX-License-Identifier: Apache-2.0
// The scan of the lists that a query probes: the entry point of the family.
#pragma once

#include "filter.cuh"
#include "group_distance.cuh"
#include "post_lambda.cuh"
#include "selection.cuh"

namespace ivf_flat {

constexpr uint32_t block_size = 256;
constexpr uint32_t warps_per_block = block_size / warp_size;

// In the place of a list: nothing to probe.
constexpr uint32_t no_list = 0xffffffffu;

// For each query the best of the vectors in the lists that it probes, among those that the filter lets through.
//
//   vectors        the lists, each of whole groups of 32 vectors. Component d of vector v of a group is at
//                  ((d / Veclen) × 32 + v) × Veclen + d % Veclen. A vector has num_chunks × Veclen components, its
//                  own and zeros; unused places of a list's last group may hold anything. Aligned to 16 bytes.
//   ids            for each slot (32 × group + v) the vector's id
//   list_sizes     for each list how many vectors it holds
//   list_groups    for each list its first group
//   queries        a row of num_chunks × Veclen components a query, its own and zeros. Aligned to 16 bytes.
//   probes         for each query num_probes lists, or no_list
//   probe_offsets  capacity 0 only, else null: for each query and probe where in the row its list begins
//   filter_data    what the filter linked in says; null where it reads nothing
//   distances,     results in rows of row_length. Where there is no candidate, the distance is ∞ (−∞ for
//   neighbours     order::descending) and the neighbour −1.
//
// Capacity > 0: block b of a query takes its probes b, b + blocks_per_query, … and writes a row of its own, number
// query × blocks_per_query + b: its row_length best, the best first; row_length ≤ Capacity. Merging the rows of a
// query is the caller's part.
// Capacity 0: no selection. A query has one row, to which its blocks write all distances, 32 for each group of a
// list, in the order in which they are stored. What no list reaches is left as it is.
//
// Launch with grid = queries × blocks_per_query, block = 256, and num_chunks × Veclen × sizeof(T) bytes of dynamic
// shared memory. Work is spread over warps group by group, so that short lists do not leave warps idle.
template <int Capacity, order Order, typename T, typename AccT, int Veclen, bool ComputeNorm>
__global__ void __launch_bounds__(block_size)
    interleaved_scan(const T* __restrict__ vectors, const int64_t* __restrict__ ids,
                     const uint32_t* __restrict__ list_sizes, const uint32_t* __restrict__ list_groups,
                     const T* __restrict__ queries, const uint32_t* __restrict__ probes,
                     const uint32_t* __restrict__ probe_offsets, const void* __restrict__ filter_data,
                     float* __restrict__ distances, int64_t* __restrict__ neighbours, uint32_t num_probes,
                     uint32_t blocks_per_query, uint32_t num_chunks, uint32_t row_length) {
  using chunk = packed_t<T, Veclen>;
  // A shuffle that waits for lanes that a block does not have is undefined: stop rather than answer wrongly.
  if (blockDim.x != block_size) { __trap(); }
  const uint32_t query = blockIdx.x / blocks_per_query;
  const uint32_t part = blockIdx.x % blocks_per_query;
  const uint32_t warp = threadIdx.x / warp_size;
  const uint32_t lane = lane_index();

  extern __shared__ uint4 dynamic_shared[];
  chunk* const query_chunks = reinterpret_cast<chunk*>(dynamic_shared);
  const chunk* const own_query = reinterpret_cast<const chunk*>(queries) + static_cast<uint64_t>(query) * num_chunks;
  for (uint32_t c = threadIdx.x; c < num_chunks; c += block_size) { query_chunks[c] = __ldg(own_query + c); }
  __syncthreads();
  const float query_norm = ComputeNorm ? norm<T, AccT, Veclen>(query_chunks, num_chunks) : 0.0f;

  // Calls use(probe, number in the list, slot, distance, whether it is a candidate) for all vectors of this warp.
  const auto scan = [&](auto use) {
    uint32_t next = warp;  // the warp's next group, counted on from list to list
    for (uint32_t probe = part; probe < num_probes; probe += blocks_per_query) {
      const uint64_t place = static_cast<uint64_t>(query) * num_probes + probe;
      const uint32_t list = __ldg(probes + place);
      if (list == no_list) { continue; }
      const uint32_t size = __ldg(list_sizes + list);
      const uint32_t groups = (size + warp_size - 1) / warp_size;
      const uint32_t first = __ldg(list_groups + list);
      for (; next < groups; next += warps_per_block) {
        const chunk* group =
            reinterpret_cast<const chunk*>(vectors) + static_cast<uint64_t>(first + next) * num_chunks * warp_size;
        const float distance = group_distance<T, AccT, Veclen, ComputeNorm>(group, query_chunks, num_chunks, query_norm);
        const uint32_t number = next * warp_size + lane;
        const uint32_t slot = first * warp_size + number;
        // A NaN is equal to nothing: it is no candidate.
        const bool valid = number < size && distance == distance && filter(query, __ldg(ids + slot), filter_data);
        use(place, number, slot, distance, valid);
      }
      next -= groups;
    }
  };

  if constexpr (Capacity == 0) {
    float* const row_distances = distances + static_cast<uint64_t>(query) * row_length;
    int64_t* const row_neighbours = neighbours + static_cast<uint64_t>(query) * row_length;
    scan([&](uint64_t place, uint32_t number, uint32_t slot, float distance, bool valid) {
      const uint32_t i = __ldg(probe_offsets + place) + number;
      row_distances[i] = valid ? post_lambda(distance) : no_distance<Order>();
      row_neighbours[i] = valid ? __ldg(ids + slot) : -1;
    });
  } else {
    __shared__ uint64_t shared_keys[warps_per_block][selection<Capacity>::shared_keys];
    selection<Capacity> selected(shared_keys[warp]);
    scan([&](uint64_t, uint32_t, uint32_t slot, float distance, bool valid) {
      selected.offer(valid ? make_key<Order>(distance, slot) : no_key);
    });
    warp_queue<Capacity>& queue = selected.finish();
    // Half of the warps hand their queues on to the other half, until one has them all.
    for (uint32_t half = warps_per_block / 2; half > 0; half /= 2) {
      if (warp >= half && warp < 2 * half) { queue.store(shared_keys[warp]); }
      __syncthreads();
      if (warp < half) { queue.take(shared_keys[warp + half]); }
    }
    if (warp == 0) {
      const uint64_t row = static_cast<uint64_t>(blockIdx.x) * row_length;
      queue.for_each(row_length, [&](uint32_t i, uint64_t key) {
        const bool found = key != no_key;
        distances[row + i] = found ? post_lambda(key_distance<Order>(key)) : no_distance<Order>();
        neighbours[row + i] = found ? __ldg(ids + key_slot(key)) : -1;
      });
    }
  }
}

}  // namespace ivf_flat
