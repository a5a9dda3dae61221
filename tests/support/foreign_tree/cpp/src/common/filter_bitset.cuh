#pragma once
#include <common/filter.cuh>
namespace vecdb {
template <typename IdxT>
__device__ bool keep(IdxT row, search_params params) { return params.bitset[row / 32] >> (row % 32) & 1; }
}  // namespace vecdb
