// SPDX-License-Identifier: Apache-2.0
// How the threads of a block share its rows, and what they exchange.
#pragma once

namespace segment_reduce {

// A thread takes V neighbouring columns of a row, and up to 32 threads, `columns` of them, stand side by side on a row,
// so that an element is read in long pieces; wider rows are divided into tiles, each for a block of its own. Of such
// groups of threads there are `lanes`: each takes a row, or, of a long row, every `lanes`-th element. Groups don't end
// where warps do: so few threads are left over, whatever the width.
//
//   launch   vectors = width / V; tiles = ceil(vectors / 32); columns = ceil(vectors / tiles); lanes = 256 / columns
//            grid = tiles * n in one dimension, with any n: a block takes a set of `lanes` rows, and every n-th after
//            it. Offsets of the next set are read ahead; a few thousand blocks balance, and a thousand share long rows.
//            block = 256; no dynamic shared memory
template <int V>
struct place {
  // Enumerators, because static members would be symbols of the fragment.
  enum : unsigned int { block = 256 };

  unsigned int columns, lanes;
  unsigned int lane;          // the number of this thread's group
  unsigned int tile, column;  // the first column of the tile, and of this thread
  bool active;                // false: there is no such lane or column
  unsigned int block_number, blocks;  // among those of the tile

  __device__ __forceinline__ explicit place(unsigned int width) {
    const unsigned int vectors = width / V, tiles = (vectors + 31) / 32;
    columns = (vectors + tiles - 1) / tiles;
    lanes = block / columns;
    lane = threadIdx.x / columns;
    tile = blockIdx.x % tiles * columns * V;
    column = tile + threadIdx.x % columns * V;
    active = lane < lanes && column < width;
    block_number = blockIdx.x / tiles;
    blocks = gridDim.x / tiles;
  }
};

// What the threads of a block exchange, in 1 to 8 KB of shared memory.
template <int V>
struct buffer {
  float numbers[V][place<V>::block];  // a plane for each of a thread's columns
  unsigned int first_thread;

  __device__ __forceinline__ void put(unsigned int i, const float (&value)[V]) {
#pragma unroll
    for (int v = 0; v < V; ++v) { numbers[v][i] = value[v]; }
  }

  template <typename Reduction>
  __device__ __forceinline__ void combine(unsigned int i, float (&result)[V]) const {
#pragma unroll
    for (int v = 0; v < V; ++v) { result[v] = Reduction::combine(result[v], numbers[v][i]); }
  }

  // The first thread that votes, or else `block`. For all threads of the block.
  __device__ __forceinline__ unsigned int first(bool votes) {
    __syncthreads();  // what was there has been read
    if (threadIdx.x == 0) { first_thread = place<V>::block; }
    __syncthreads();
    if (votes) { atomicMin(&first_thread, threadIdx.x); }
    __syncthreads();
    return first_thread;
  }
};

}  // namespace segment_reduce
