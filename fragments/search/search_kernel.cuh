// SPDX-License-Identifier: Apache-2.0
// Nearest neighbours by brute force: the entry point of the family.
#pragma once

#include "search_optimized.cuh"
#include "search_standard.cuh"

namespace search {

// Finds, for each query, the row with the smallest distance among those that pass the filter.
//
//   dataset      num_rows × dim, row-major, of type T (float or __half)
//   queries      num_queries × dim, row-major, of type T
//   indices      num_queries results: the row, the first one if several are equally close; -1 (the maximum of an
//                unsigned type) if there is none: no rows, all filtered out, or all distances NaN
//   distances    num_queries results: the distance of that row, summed in OutT; infinity if there is no row
//   filter_data  as the linked filter documents; null if the filter does not read it
//
// Veclen is the number of elements that a thread processes at a time, in accesses of at most 16 bytes. If rows are not
// aligned to such an access (an odd dim, a pointer into the middle of a row), elements are read one by one.
//
// Launch in one dimension; any grid works, because blocks and threads stride over queries. No dynamic shared memory.
//   optimized   a block per query:  grid = num_queries, block = 256 (any multiple of 32; 1024 for a few queries)
//   standard    a thread per query: grid = ceil(num_queries / block), block = 128 (any)
//
// The launch bounds limit registers so that a block of 1024 threads fits, but no further.
template <typename T, typename OutT, typename IdxT, bool Optimized, int Veclen>
__global__ void __launch_bounds__(1024, 1)
    search_kernel(const T* __restrict__ dataset, const T* __restrict__ queries, IdxT* __restrict__ indices,
                  OutT* __restrict__ distances, IdxT num_rows, uint32_t num_queries, uint32_t dim,
                  const void* __restrict__ filter_data) {
  constexpr int access = Veclen * sizeof(T) <= 16 ? Veclen : 16 / sizeof(T);  // elements in the widest access
  const bool aligned = is_aligned<access>(dataset, queries, dim);
  if constexpr (Optimized) {
    static_assert(Veclen == access, "a lane of the optimized kernel takes one access at a time");
    if (access == 1 || !aligned) {
      search_optimized<1>(dataset, queries, indices, distances, num_rows, num_queries, dim, filter_data);
    } else {
      search_optimized<access>(dataset, queries, indices, distances, num_rows, num_queries, dim, filter_data);
    }
  } else {
    if (aligned) {
      search_standard<Veclen, access>(dataset, queries, indices, distances, num_rows, num_queries, dim, filter_data);
    } else {
      search_standard<Veclen, 1>(dataset, queries, indices, distances, num_rows, num_queries, dim, filter_data);
    }
  }
}

}  // namespace search
