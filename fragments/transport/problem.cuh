// SPDX-License-Identifier: Apache-2.0
// The problem to simulate, the same for all particles. The kernel makes it from its parameters and describes them.
#pragma once

#include "types.cuh"

namespace transport {

struct problem {
  uint32_t cells_x, cells_y, cells_z;
  uint32_t cells;    // their product
  vector cell_size;  // cm
  const uint32_t* materials;
  uint32_t num_groups;
  const float* total;
  const float* absorption;
  const float* mean_cosine;
  const float* group_distribution;
  vector source_position;
  uint32_t source_group;
  uint32_t reflective_faces;
  float flux_scale;
  wide_t* flux;  // of this thread's batch
};

}  // namespace transport
