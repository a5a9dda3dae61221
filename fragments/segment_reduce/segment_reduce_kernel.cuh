// SPDX-License-Identifier: Apache-2.0
// Reductions of consecutive elements.
#pragma once

#include <cuda/std/cstdint>

#include "elements.cuh"
#include "place.cuh"
#include "reductions.cuh"
#include "segment_store.cuh"
#include "stage_rows.cuh"

namespace segment_reduce {

using cuda::std::int32_t;
using cuda::std::int64_t;

// The first and one behind the last element of a row.
struct borders {
  unsigned long long begin, end;

  template <typename Index>
  __device__ __forceinline__ borders(const Index* offsets, unsigned long long row)
      : begin(__ldg(offsets + row)), end(__ldg(offsets + row + 1)) {}
};

template <typename Reduction, int V>
__device__ __forceinline__ void begin(float (&result)[V]) {
#pragma unroll
  for (int v = 0; v < V; ++v) { result[v] = Reduction::identity(); }
}

// The whole block reduces one row: each lane some of its elements; their results are then combined in pairs.
template <typename Reduction, typename Stored, int V>
__device__ __forceinline__ void reduce_long_row(const reader<Stored, V>& from, const borders& row, buffer<V>& shared,
                                                float (&result)[V]) {
  const place<V>& me = from.me;
  begin<Reduction>(result);
  if (me.active) { reduce_elements<Reduction>(from, row.begin, row.end, me.lane, me.lanes, result); }
  for (unsigned int lanes = me.lanes, half; lanes > 1; lanes = half) {
    half = (lanes + 1) / 2;
    __syncthreads();  // what was there has been read
    if (me.lane >= half && me.lane < lanes) {
#pragma unroll
      for (int v = 0; v < V; ++v) { shared.numbers[v][threadIdx.x - half * me.columns] = result[v]; }
    }
    __syncthreads();
    if (me.lane < lanes - half) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        result[v] = Reduction::combine(result[v], shared.numbers[v][threadIdx.x]);
      }
    }
  }
}

// All rows of a block.
template <typename Reduction, typename Stored, typename Index, int V>
__device__ __forceinline__ void reduce_rows(const reader<Stored, V>& from, const Index* offsets, Stored* output,
                                            unsigned long long rows, void* store_info, buffer<V>& shared) {
  const place<V>& me = from.me;
  if (me.first_row >= rows) { return; }
  const unsigned int here = rows - me.first_row < me.lanes ? rows - me.first_row : me.lanes;
  // A row that would keep a thread while all others of its block have finished is left to all of them.
  const unsigned int most = me.is_narrow() ? 512 : 128;
  const auto is_long = [&](const borders& row) { return row.end - row.begin > most; };
  const bool exists = me.active && me.lane < here;
  const borders own(offsets, me.first_row + (exists ? me.lane : 0));
  const bool is_own = exists && !is_long(own);
  const bool is_any_long = __syncthreads_or(exists && !is_own);

  float result[V];
  const auto store = [&](unsigned long long row, const borders& elements) {
#pragma unroll
    for (int v = 0; v < V; ++v) { result[v] = Reduction::finish(result[v], elements.end - elements.begin); }
    segment_store(output, row, me.column, from.width, result, store_info);
  };
  begin<Reduction>(result);
  if (me.is_narrow()) {
    for (unsigned int first = 0, next; first < here; first = next + 1) {
      for (next = is_any_long ? first : here; next < here; ++next) {
        if (is_long({offsets, me.first_row + next})) { break; }
      }
      stage_rows<Reduction>(from, __ldg(offsets + me.first_row + first), __ldg(offsets + me.first_row + next),
                            is_own ? own.begin : 0, is_own ? own.end : 0, shared, result);
    }
  } else if (is_own) {
    reduce_elements<Reduction>(from, own.begin, own.end, 0, 1, result);
  }
  if (is_own) { store(me.first_row + me.lane, own); }
  if (!is_any_long) { return; }
  for (unsigned int i = 0; i < here; ++i) {
    const borders elements(offsets, me.first_row + i);
    if (!is_long(elements)) { continue; }
    reduce_long_row<Reduction>(from, elements, shared, result);
    if (me.active && me.lane == 0) { store(me.first_row + i, elements); }
  }
}

// For each of `rows` rows and each column: output[row] = values[offsets[row]] + ... + values[offsets[row + 1] - 1], or
// their mean or maximum. Offsets, of which there are rows + 1, don't decrease. Everything is computed in float, and the
// result rounded once. The order of additions depends on the row's length and width alone.
//
// Elements are read by `segment_load` and rows written by `segment_store`, which get `load_info` and `store_info`. V is a
// number of neighbouring columns, by which `width` can be divided; the largest is the fastest. For the launch see
// place.cuh.
template <typename Stored, typename Index, int V, typename Reduction>
__global__ void __launch_bounds__(place<V>::block)
    segment_reduce_kernel(const Stored* values, const Index* offsets, Stored* output, Index rows, unsigned int width,
                          void* load_info, void* store_info) {
  __shared__ buffer<V> shared;
  const reader<Stored, V> from{values, width, load_info, place<V>(width)};
  // Compiled twice, for each answer: no load then asks again.
  if (is_aligned<V>(values)) {
    reduce_rows<Reduction>(from, offsets, output, rows, store_info, shared);
  } else {
    reduce_rows<Reduction>(from, offsets, output, rows, store_info, shared);
  }
}

}  // namespace segment_reduce
