#pragma once
#include <vecdb/types.cuh>

namespace vecdb {
template <typename IdxT>
__device__ bool keep(IdxT row, search_params params);
template <typename T>
__device__ float load(const T* data, unsigned long long at);
}  // namespace vecdb
