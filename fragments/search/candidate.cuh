// SPDX-License-Identifier: Apache-2.0
// The best row found so far, and the order in which rows win.
#pragma once

#include "types.cuh"

namespace search {

template <typename OutT, typename IdxT>
struct candidate {
  OutT distance;
  IdxT index;
};

// No row: infinitely far, and -1 as the index, which for an unsigned type is its maximum.
template <typename OutT, typename IdxT>
__device__ __forceinline__ candidate<OutT, IdxT> no_candidate() {
  return {static_cast<OutT>(__int_as_float(0x7f800000)), static_cast<IdxT>(-1)};
}

// The closer of two; of equally close ones that with the smaller index, so that the answer depends neither on the
// order of the reduction nor on the launch. Indices compare as unsigned, and so a row infinitely far away still
// beats no row. A NaN loses every comparison as `other`, and never becomes `best`.
template <typename OutT, typename IdxT>
__device__ __forceinline__ candidate<OutT, IdxT> closer(candidate<OutT, IdxT> best, candidate<OutT, IdxT> other) {
  const bool smaller_index = static_cast<uint64_t>(other.index) < static_cast<uint64_t>(best.index);
  return other.distance < best.distance || (other.distance == best.distance && smaller_index) ? other : best;
}

}  // namespace search
