// SPDX-License-Identifier: Apache-2.0
// Monte Carlo transport of neutral particles in a grid of cells: the entry point of the family.
#pragma once

#include "follow.cuh"

namespace transport {

// Follows particles until each is absorbed or has left the grid, and tallies where they were.
//
//   seed, num_particles  particle n of all batches draws from stream n of the seed; it belongs to batch n % batches
//   max_flights          a history that has not ended after this many flights is cut, and counted as such
//   cells_x, _y, _z      cells of the grid, 2^32 - 1 at most; a slab has layers along x: cells_y = cells_z = 1
//   size_x, _y, _z       edges of the grid in cm; those of a slab in y and z do not matter
//   materials            the material of each cell, x fastest
//   num_groups           groups of energy; 1 for cross sections of one group
//   total, absorption, mean_cosine
//                        materials × num_groups: cross sections in 1/cm, and the mean cosine of scattering
//   group_distribution   materials × num_groups × num_groups: a row for each group before a collision has the
//                        cumulative distribution of the group after it; not read for one group, and may be null
//   source_x, _y, _z     where a point source is, in cm
//   source_group         in which group particles are born
//   reflective_faces     bit f: face f is a mirror (low and high in x, in y, in z); read where boundaries are mixed
//   flux_scale           what a cm of track at weight 2^-24 adds to the flux; a power of two, so that it costs no bit
//   flux                 batches × num_groups × cells: what is found there is added to
//   ledger               batches × ledger_entries (ledger.cuh): likewise
//
// Launch in two dimensions, without dynamic shared memory: grid = (any, batches), block = 128 (any, in x). Each thread
// follows particles of its batch one after another. The results do not depend on the launch: a particle's history is a
// function of the seed and its number, and sums are of integers.
__global__ void transport_kernel(wide_t seed, wide_t num_particles, uint32_t max_flights, uint32_t cells_x,
                                 uint32_t cells_y, uint32_t cells_z, float size_x, float size_y, float size_z,
                                 const uint32_t* __restrict__ materials, uint32_t num_groups,
                                 const float* __restrict__ total, const float* __restrict__ absorption,
                                 const float* __restrict__ mean_cosine, const float* __restrict__ group_distribution,
                                 float source_x, float source_y, float source_z, uint32_t source_group,
                                 uint32_t reflective_faces, float flux_scale, wide_t* flux, wide_t* ledger) {
  const wide_t batch = blockIdx.y;
  const wide_t batches = gridDim.y;
  const uint32_t cells = cells_x * cells_y * cells_z;
  const vector cell_size = {size_x / static_cast<float>(cells_x), size_y / static_cast<float>(cells_y),
                            size_z / static_cast<float>(cells_z)};
  const problem problem = {cells_x, cells_y, cells_z, cells, cell_size, materials, num_groups, total, absorption, mean_cosine,
                           group_distribution, {source_x, source_y, source_z}, source_group, reflective_faces,
                           flux_scale, flux + batch * num_groups * cells};

  // One per thread, written once: atomic additions of all threads to one address would be the bottleneck.
  transport::ledger own = {};
  const wide_t stride = static_cast<wide_t>(gridDim.x) * blockDim.x * batches;
  const wide_t first = (static_cast<wide_t>(blockIdx.x) * blockDim.x + threadIdx.x) * batches + batch;
  for (wide_t number = first; number < num_particles; number += stride) {
    particle particle = {};
    particle.weight = full_weight;
    particle.random = stream_of(seed, number);
    follow(problem, max_flights, particle, own);
  }
  add_to_row(own, ledger + batch * ledger_entries);
}

}  // namespace transport
