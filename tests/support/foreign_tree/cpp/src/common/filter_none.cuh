#pragma once
#include <common/filter.cuh>
namespace vecdb {
template <typename IdxT>
__device__ bool keep(IdxT, search_params) { return true; }
}  // namespace vecdb
