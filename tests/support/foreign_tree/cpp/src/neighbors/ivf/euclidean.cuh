#pragma once
#include <neighbors/ivf/scan.cuh>
namespace vecdb::ivf {
template <typename T, typename AccT>
__device__ void distance(AccT& acc, T a, T b) {
  AccT d = AccT(load(&a, 0) - load(&b, 0));
  acc += d * d;
}
}  // namespace vecdb::ivf
