// SPDX-License-Identifier: Apache-2.0
// One particle of a history.
#pragma once

#include "random_stream.cuh"

namespace transport {

struct cell_index {
  uint32_t x, y, z;
};

struct particle {
  vector position;   // cm from the grid's low corner
  vector direction;  // of length 1; a slab uses x only
  cell_index cell;   // held beside the position, which rounding may leave on either side of a face
  uint32_t group;    // of energy; 0 is the fastest
  weight_t weight;
  random_stream random;
};

}  // namespace transport
