// SPDX-License-Identifier: Apache-2.0
// The best of the sorted results that several blocks have found for the same query.
#pragma once

#include "types.cuh"

namespace ivf_flat {

// Writes the best `count` of each query's rows × count results. Each row is sorted, the best first, without NaN, and
// with its empty places, of id −1, at the end.
//
// A result's rank is its place in its own row plus the number of results in the other rows that come before it. Ties are
// broken so that ranks are unique: a vector comes before an empty place, which is infinitely far too, and an earlier row
// before a later one. Launch with a thread per result.
__global__ void merge_results(const float* __restrict__ distances, const int64_t* __restrict__ neighbours,
                              float* __restrict__ best, int64_t* __restrict__ found, uint32_t num_queries,
                              uint32_t rows, uint32_t count, uint32_t ascending) {
  const uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const uint64_t query = i / (rows * count);
  if (query >= num_queries) { return; }
  const uint32_t own = i / count % rows;
  const float distance = distances[i];
  const bool empty = neighbours[i] < 0;
  uint32_t rank = i % count;
  for (uint32_t row = 0; row < rows && rank < count; ++row) {
    if (row == own) { continue; }
    const auto comes_before = [=](uint32_t number) {
      const uint64_t place = (query * rows + row) * count + number;
      const float other = distances[place];
      const bool first = (neighbours[place] < 0) == empty ? row < own : empty;
      const bool better = ascending != 0 ? other < distance : other > distance;
      return better || (other == distance && first);
    };
    // Few of a row come before one of the best: steps that double reach the end of them sooner than halves of the row.
    uint32_t low = 0;
    uint32_t high = 1;
    for (; high <= count && comes_before(high - 1); high *= 2) { low = high; }
    for (high = min(high - 1, count); low < high;) {
      const uint32_t middle = (low + high) / 2;
      if (comes_before(middle)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    rank += low;
  }
  if (rank < count) {
    best[query * count + rank] = distance;
    found[query * count + rank] = neighbours[i];
  }
}

}  // namespace ivf_flat
