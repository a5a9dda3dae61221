// SPDX-License-Identifier: Apache-2.0
// Reductions of consecutive elements.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cuda/std/cstdint>

#include "place.cuh"
#include "reductions.cuh"
#include "segment_load.cuh"
#include "segment_store.cuh"

namespace segment_reduce {

using cuda::std::int32_t;
using cuda::std::int64_t;
using index_t = unsigned long long;  // of a row or an element

// The rows of a block, as one of its threads reduces them.
template <typename Stored, typename Index, int V, typename Reduction>
struct block_rows {
  const Stored* values;
  const Index* offsets;
  Stored* output;
  index_t rows;
  unsigned int width;
  void* load_info;
  void* store_info;
  place<V> me;
  buffer<V>& shared;

  // The first element of a row, and the one behind its last.
  struct borders {
    index_t begin, end;
  };
  __device__ __forceinline__ borders borders_of(index_t row) const {
    return {static_cast<index_t>(__ldg(offsets + row)), static_cast<index_t>(__ldg(offsets + row + 1))};
  }

  // A row that would keep its threads while the others of the block have finished is left to all of them.
  __device__ __forceinline__ bool is_long(const borders& row) const {
    return row.end - row.begin > (me.columns < 8 ? 128 : 512);
  }

  __device__ __forceinline__ void begin(float (&result)[V]) const {
#pragma unroll
    for (int v = 0; v < V; ++v) { result[v] = Reduction::identity(); }
  }

  // Combines `Flight` elements, from `number` on, which are all there.
  template <unsigned int Flight>
  __device__ __forceinline__ void reduce_flight(unsigned int column, index_t begin, unsigned int number,
                                                unsigned int step, float (&result)[V]) const {
    float x[Flight][V];
#pragma unroll
    for (unsigned int i = 0; i < Flight; ++i) {
      segment_load(values, begin + (number + i * step), column, width, load_info, x[i]);
    }
#pragma unroll
    for (unsigned int i = 0; i < Flight; ++i) {
#pragma unroll
      for (int v = 0; v < V; ++v) { result[v] = Reduction::combine(result[v], x[i][v]); }
    }
  }

  // Combines elements `number`, `number + step`, ... of the `count` from `begin` on with the result, in this order.
  // `Flight` of them are read at once: loads are gathers, whose latency nothing else hides.
  template <unsigned int Flight>
  __device__ __forceinline__ void reduce_elements(unsigned int column, index_t begin, unsigned int count,
                                                  unsigned int number, unsigned int step, float (&result)[V]) const {
    for (; number + (Flight - 1) * step < count; number += Flight * step) {
      reduce_flight<Flight>(column, begin, number, step, result);
    }
    if (Flight > 4 && number + 3 * step < count) {
      reduce_flight<4>(column, begin, number, step, result);
      number += 4 * step;
    }
    if (number + step < count) {
      reduce_flight<2>(column, begin, number, step, result);
      number += 2 * step;
    }
    if (number < count) { reduce_flight<1>(column, begin, number, step, result); }
  }

  __device__ __forceinline__ void store(index_t row, unsigned int column, index_t elements,
                                        float (&result)[V]) const {
#pragma unroll
    for (int v = 0; v < V; ++v) { result[v] = Reduction::finish(result[v], elements); }
    segment_store(output, row, column, width, result, store_info);
  }

  // All rows but the long ones, one for each lane at a time.
  __device__ __forceinline__ void reduce_rows() const {
    const index_t step = index_t{me.blocks} * me.lanes;
    index_t row = index_t{me.block_number} * me.lanes + me.lane;
    if (!me.active || row >= rows) { return; }
    for (borders own = borders_of(row), next = own; row < rows; row += step, own = next) {
      if (row + step < rows) { next = borders_of(row + step); }
      if (is_long(own)) { continue; }
      const unsigned int count = own.end - own.begin;
      float result[V];
      begin(result);
      reduce_elements<V < 4 ? 8 : 4>(me.column, own.begin, count, 0, 1, result);
      store(row, me.column, count, result);
    }
  }

  // A part of a row, `columns` from one on: each lane reduces some elements; their results are then combined in pairs.
  __device__ __forceinline__ void reduce_long_row(index_t row, unsigned int part, unsigned int columns) const {
    const unsigned int vector = part * columns + threadIdx.x % columns, column = me.tile + vector * V;
    const unsigned int lane = threadIdx.x / columns;
    unsigned int lanes = place<V>::block / columns;
    const bool active = lane < lanes && vector < me.columns && column < width;
    const borders elements = borders_of(row);
    float result[V];
    begin(result);
    constexpr unsigned int most = 1u << 30;  // numbers of 32 bits are enough for so many
    for (index_t first = elements.begin; active && first < elements.end; first += most) {
      const unsigned int count = elements.end - first < most ? elements.end - first : most;
      reduce_elements<8>(column, first, count, lane, lanes, result);
    }
    for (unsigned int half; lanes > 1; lanes = half) {
      half = (lanes + 1) / 2;
      __syncthreads();  // what was there has been read
      if (lane >= half && lane < lanes) { shared.put(threadIdx.x - half * columns, result); }
      __syncthreads();
      if (lane < lanes - half) { shared.template combine<Reduction>(threadIdx.x, result); }
    }
    if (active && lane == 0) { store(row, column, elements.end - elements.begin, result); }
  }

  // A block would be busy with a long row when all others have finished. So the columns of a tile are divided into parts
  // of 32 bytes, and the blocks that start first look for such parts among all rows.
  __device__ __forceinline__ void reduce() const {
    constexpr unsigned int piece = 32 / (V * sizeof(Stored));
    const unsigned int columns = ::min(me.columns, piece);
    const unsigned int parts = (me.columns + columns - 1) / columns;
    const unsigned int blocks = me.blocks > 1024 ? me.blocks / 2 : me.blocks;
    const index_t end = me.block_number < blocks ? rows * parts : 0, step = index_t{place<V>::block} * blocks;
    const auto is_left = [&](index_t unit) { return unit < end && is_long(borders_of(unit / parts)); };
    index_t own = me.block_number + index_t{threadIdx.x} * blocks;
    bool is_own_left = is_left(own);  // read early: nothing waits for it
    reduce_rows();
    for (index_t first = me.block_number; first < end; first += step) {
      for (unsigned int next = __syncthreads_or(is_own_left) ? 0 : place<V>::block; next < place<V>::block; ++next) {
        next = shared.first(is_own_left && threadIdx.x >= next);
        const index_t found = first + index_t{next} * blocks;
        if (next < place<V>::block) { reduce_long_row(found / parts, found % parts, columns); }
      }
      is_own_left = is_left(own += step);
    }
  }
};

// For each of `rows` rows and each column: output[row] = values[offsets[row]] + ... + values[offsets[row + 1] - 1], or
// their mean or maximum. Offsets, of which there are rows + 1, don't decrease. Everything is computed in float and the
// result rounded once, and in an order that depends on a row's length, `width` and V alone.
//
// Elements are read by `segment_load` and rows written by `segment_store`, which get `load_info` and `store_info`.
// `width` is a multiple of V; the largest V is the fastest. For the launch see place.cuh.
template <typename Stored, typename Index, int V, typename Reduction>
__global__ void __launch_bounds__(place<V>::block, 4)
    segment_reduce_kernel(const Stored* values, const Index* offsets, Stored* output, Index rows, unsigned int width,
                          void* load_info, void* store_info) {
  __shared__ buffer<V> shared;
  const block_rows<Stored, Index, V, Reduction> block{
      values, offsets, output, static_cast<index_t>(rows), width, load_info, store_info, place<V>(width), shared};
  // The same for both answers, compiled twice: no load then asks again.
  if (is_aligned<V>(values)) {
    block.reduce();
  } else {
    block.reduce();
  }
}

}  // namespace segment_reduce
