// SPDX-License-Identifier: Apache-2.0
// Account of the weight that one thread followed.
#pragma once

#include "types.cuh"

namespace transport {

// Faces of the grid, by number: low and high in x, in y, in z.
constexpr uint32_t num_faces = 6;

// One per thread. Indexing `leaked` puts it into local memory, which saves registers and is accessed only at collisions
// and at the end of histories. Weights are exact, so in every batch
//   particles * full_weight + gained = absorbed + leaked (all faces) + lost + cut.
struct ledger {
  wide_t leaked[num_faces];  // weight that left through each face
  wide_t absorbed;           // weight that collisions took
  wide_t gained;             // weight that roulette gave to survivors
  wide_t lost;               // weight that roulette took from the others
  wide_t cut;                // weight of histories that were cut, see the kernel
  wide_t collisions;         // how many
  wide_t flights;            // how many: straight lines that end in a collision or on the face of a cell
};

constexpr uint32_t ledger_entries = num_faces + 6;

// Adds a thread's entries to a row of `ledger_entries`, in the order above.
__device__ __forceinline__ void add_to_row(const ledger& ledger, wide_t* row) {
  const wide_t entries[] = {ledger.leaked[0], ledger.leaked[1],  ledger.leaked[2], ledger.leaked[3],
                            ledger.leaked[4], ledger.leaked[5],  ledger.absorbed,  ledger.gained,
                            ledger.lost,      ledger.cut,        ledger.collisions, ledger.flights};
  static_assert(sizeof(entries) == sizeof(wide_t) * ledger_entries, "a row has every entry");
#pragma unroll
  for (uint32_t i = 0; i < ledger_entries; ++i) {
    if (entries[i] != 0) { atomicAdd(row + i, entries[i]); }
  }
}

}  // namespace transport
