// SPDX-License-Identifier: Apache-2.0
// The best row found so far, and the order in which rows are preferred.
#pragma once

#include "types.cuh"

namespace search {

template <typename OutT, typename IdxT>
struct candidate {
  OutT distance;
  IdxT index;
};

// No row: an infinite distance, and the index -1, which is the maximum of an unsigned type.
template <typename OutT, typename IdxT>
__device__ __forceinline__ candidate<OutT, IdxT> no_candidate() {
  return {static_cast<OutT>(__int_as_float(0x7f800000)), static_cast<IdxT>(-1)};
}

// Returns the closer of two, or the one with the smaller index if they are equally close, so that the result depends
// neither on the order of the reduction nor on the launch. Indices are compared as unsigned, so that a row at an
// infinite distance is preferred to no row. If `other` is NaN, every comparison is false, so it never becomes `best`.
template <typename OutT, typename IdxT>
__device__ __forceinline__ candidate<OutT, IdxT> closer(candidate<OutT, IdxT> best, candidate<OutT, IdxT> other) {
  const bool smaller_index = static_cast<uint64_t>(other.index) < static_cast<uint64_t>(best.index);
  return other.distance < best.distance || (other.distance == best.distance && smaller_index) ? other : best;
}

}  // namespace search
