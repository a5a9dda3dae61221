// SPDX-License-Identifier: Apache-2.0
// How the threads of a block share its rows.
#pragma once

namespace segment_reduce {

// A thread takes V neighbouring columns of a row. Up to 32 threads, `columns` of them, stand side by side on a row, so
// that each element is read in long pieces; wider rows are divided into tiles of the same width, each for a block of its
// own. `lanes` such groups of threads take a row each, or all the same row where it is long: then each takes every
// `lanes`-th element of it. Groups don't end where warps do: few threads are left over, whatever the width.
//
//   launch   vectors = width / V; tiles = ceil(vectors / 32); columns = ceil(vectors / tiles); lanes = 256 / columns
//            grid = ceil(rows / lanes) * tiles, in one dimension, where one block more than that is allowed too
//            block = 256
//            no dynamic shared memory
template <int V>
struct place {
  // Enumerators, because static members would be symbols of the fragment.
  enum : unsigned int { block = 256 };

  unsigned int columns, lanes;
  unsigned int lane;             // the number of this thread's group
  unsigned int column;           // the first of this thread's columns
  bool active;                   // false: there is no such lane or column
  unsigned long long first_row;  // of the block

  __device__ __forceinline__ explicit place(unsigned int width) {
    const unsigned int vectors = width / V, tiles = (vectors + 31) / 32;
    columns = (vectors + tiles - 1) / tiles;
    lanes = block / columns;
    lane = threadIdx.x / columns;
    column = (blockIdx.x % tiles * columns + threadIdx.x % columns) * V;
    active = lane < lanes && column < width;
    first_row = static_cast<unsigned long long>(blockIdx.x / tiles) * lanes;
  }

  // Threads side by side on rows that are so narrow read pieces that are too short: see `stage_rows`.
  __device__ __forceinline__ bool is_narrow() const { return columns < 8; }
};

}  // namespace segment_reduce
