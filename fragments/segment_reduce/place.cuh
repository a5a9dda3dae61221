// SPDX-License-Identifier: Apache-2.0
// How the threads of a block share its rows.
#pragma once

namespace segment_reduce {

// A thread takes V neighbouring columns of a row, and up to 32 threads, `columns` of them, stand side by side on a row,
// so that an element is read in long pieces; wider rows are divided into tiles, each for a block of its own. Of such
// groups of threads there are `lanes`: each takes a row, or, of a long row, every `lanes`-th element. Groups don't end
// where warps do: so few threads are left over, whatever the width.
//
//   launch   vectors = width / V; tiles = ceil(vectors / 32); columns = ceil(vectors / tiles); lanes = 256 / columns
//            grid = tiles * n in one dimension, with n from 1 to ceil(rows / lanes): a block takes a set of `lanes`
//            rows, and every n-th after it. Offsets of the next set are read ahead; a few thousand blocks balance.
//            block = 256; no dynamic shared memory
template <int V>
struct place {
  // Enumerators, because static members would be symbols of the fragment.
  enum : unsigned int { block = 256 };

  unsigned int columns, lanes;
  unsigned int lane;         // the number of this thread's group
  unsigned int column;       // the first of this thread's columns
  bool active;               // false: there is no such lane or column
  unsigned long long first;  // row of the block
  unsigned long long step;   // from a row of a lane to its next

  __device__ __forceinline__ explicit place(unsigned int width) {
    const unsigned int vectors = width / V, tiles = (vectors + 31) / 32;
    columns = (vectors + tiles - 1) / tiles;
    lanes = block / columns;
    lane = threadIdx.x / columns;
    column = (blockIdx.x % tiles * columns + threadIdx.x % columns) * V;
    active = lane < lanes && column < width;
    first = static_cast<unsigned long long>(blockIdx.x / tiles) * lanes;
    step = static_cast<unsigned long long>(gridDim.x / tiles) * lanes;
  }

  // A warp then reads pieces of memory that are too short.
  __device__ __forceinline__ bool is_narrow() const { return columns < 8; }
};

}  // namespace segment_reduce
