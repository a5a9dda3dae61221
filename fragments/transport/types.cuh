// SPDX-License-Identifier: Apache-2.0
// Names that all sources of the family share.
#pragma once

// NVRTC has no host C++ library: the integer names come from libcu++.
#include <cuda/std/cstdint>

namespace transport {

using cuda::std::uint32_t;

// Seeds, numbers of particles and tallies. Not `uint64_t`, which is `unsigned long` for one compiler and `unsigned
// long long` for another: it is part of interfaces, and atomicAdd takes this one.
using wide_t = unsigned long long;

struct vector {
  float x, y, z;
};

// Statistical weight of a particle, in units of 2^-24. An integer, so that what is absorbed and what leaks adds up to
// what was born to the last unit; and few enough bits for a float to hold every value exactly.
using weight_t = uint32_t;
constexpr weight_t full_weight = 1u << 24;

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

}  // namespace transport
