// SPDX-License-Identifier: Apache-2.0
// The type names that the matrices use as values, so that `uint32_t` and `__half` work as template arguments.
#pragma once

// NVRTC has no host C++ library: the integer names come from libcu++, whose <cstdint> is quick to parse.
#include <cuda/std/cstdint>
#include <cuda_fp16.h>

namespace search {

using cuda::std::int64_t;
using cuda::std::uint32_t;
using cuda::std::uint64_t;
using cuda::std::uintptr_t;

}  // namespace search
