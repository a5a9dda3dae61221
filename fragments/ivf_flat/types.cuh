// SPDX-License-Identifier: Apache-2.0
// The names of integer types that the matrices use as values.
#pragma once

// NVRTC has no host C++ library: the names come from libcu++, whose <cstdint> is quick to parse. `__half` comes with
// `element_half.cuh` and nowhere else, since its header takes longer to parse than all of this family.
#include <cuda/std/cstdint>

namespace ivf_flat {

using cuda::std::int32_t;
using cuda::std::int64_t;
using cuda::std::int8_t;
using cuda::std::uint32_t;
using cuda::std::uint64_t;
using cuda::std::uint8_t;

}  // namespace ivf_flat
