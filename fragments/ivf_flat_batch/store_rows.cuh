// SPDX-License-Identifier: Apache-2.0
// Vectors into their places in the lists.
#pragma once

#include "rows.cuh"

namespace ivf_flat {

using cuda::std::uint16_t;

// Writes vectors first, first + 1, … after those that their lists hold, in the layout of `interleaved_scan.cuh`, and
// their ids. `places` and `begins` are those of the sort by list (`count_rows.cuh`), list_groups those of the lists as
// they become. A component is moved as it is: Component is an integer of its size.
//
// Launch with a warp per vector.
template <typename Component>
__global__ void store_rows(const void* __restrict__ rows, const int64_t* __restrict__ ids,
                           const uint32_t* __restrict__ labels, const uint32_t* __restrict__ places,
                           const uint32_t* __restrict__ begins, const uint32_t* __restrict__ held_sizes,
                           const uint32_t* __restrict__ list_groups, void* __restrict__ vectors,
                           int64_t* __restrict__ slot_ids, uint32_t first, uint32_t num_rows, uint32_t dim,
                           uint32_t num_chunks, uint32_t veclen, uint32_t parts) {
  const uint64_t row = row_of_warp();
  if (row >= num_rows) { return; }
  const uint64_t number = first + row;
  const uint64_t list = __ldg(labels + number);
  const uint32_t slot = __ldg(list_groups + list) * warp_size + __ldg(held_sizes + list) + __ldg(places + number) -
                        __ldg(begins + list * parts);
  const uint64_t first_chunk = static_cast<uint64_t>(slot / warp_size) * num_chunks * warp_size + slot % warp_size;
  const Component* const own = static_cast<const Component*>(rows) + row * dim;
  Component* const to = static_cast<Component*>(vectors);
  for (uint32_t c = lane_index(); c < dim; c += warp_size) {
    to[(first_chunk + c / veclen * warp_size) * veclen + c % veclen] = own[c];
  }
  if (lane_index() == 0) { slot_ids[slot] = __ldg(ids + number); }
}

}  // namespace ivf_flat
