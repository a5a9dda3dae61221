// SPDX-License-Identifier: Apache-2.0
// A block's scan of the lists that a query probes.
#pragma once

#include "filter.cuh"
#include "group_distance.cuh"

namespace ivf_flat {

constexpr uint32_t block_size = 256;
constexpr uint32_t warps_per_block = block_size / warp_size;

// In place of a list: nothing to probe.
constexpr uint32_t no_list = 0xffffffffu;

// The index; see `interleaved_scan.cuh`.
template <typename Packed>
struct inverted_lists {
  const Packed* vectors;
  const int64_t* ids;
  const uint32_t* sizes;
  const uint32_t* groups;
};

// Hands the distances of all vectors in the probes part, part + parts, … to results.take(probe, number of the vector
// in its list, slot, distance, whether it is a candidate), 32 at a time, one a lane. Each warp sees a part of them.
// The warps take groups in turn, and go on counting from list to list: short lists leave no warp idle.
// Of a multiple of num_probes parts, several share each probe.
template <typename T, typename AccT, int Veclen, bool ComputeNorm, typename Results>
__device__ __forceinline__ void scan_lists(const inverted_lists<packed_t<T, Veclen>>& lists, uint32_t query,
                                           const packed_t<T, Veclen>* query_chunks, uint32_t num_chunks,
                                           const uint32_t* probes, uint32_t num_probes, uint32_t part, uint32_t parts,
                                           const void* filter_data, Results& results) {
  const float query_norm = ComputeNorm ? norm<T, AccT, Veclen>(query_chunks, num_chunks) : 0.0f;
  const uint32_t shares = parts > num_probes ? parts / num_probes : 1;
  uint32_t next = part % shares * warps_per_block + threadIdx.x / warp_size;
#pragma unroll 1
  for (uint32_t probe = part / shares; probe < num_probes; probe += parts / shares) {
    const uint32_t list = __ldg(probes + probe);
    if (list == no_list) { continue; }
    const uint32_t size = __ldg(lists.sizes + list);
    const uint32_t first = __ldg(lists.groups + list);
    const uint32_t groups = size / warp_size + (size % warp_size != 0);
#pragma unroll 1
    for (; next < groups; next += shares * warps_per_block) {
      const uint64_t group = static_cast<uint64_t>(first) + next;
      const float distance = group_distance<T, AccT, Veclen, ComputeNorm>(
          lists.vectors + group * num_chunks * warp_size, query_chunks, num_chunks, query_norm);
      const uint32_t number = next * warp_size + lane_index();
      const uint32_t slot = first * warp_size + number;
      // A plain load, not __ldg, which CUDA 12 would keep even if no filter uses the id. A NaN is not equal to itself, and
      // is not a candidate.
      const bool candidate = number < size && distance == distance && filter(query, lists.ids[slot], filter_data);
      results.take(probe, number, slot, distance, candidate);
    }
    next -= groups;
  }
}

}  // namespace ivf_flat
