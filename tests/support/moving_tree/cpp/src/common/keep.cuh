#pragma once
#include <rowmath/rowmath.cuh>
#include <rowset/block.cuh>
#include <rowset/version.cuh>
#if ROWSET_VERSION_MAJOR != 26 || ROWSET_BLOCK != 128 || !defined(ROWSET_HOST)
#error "compiled without what CMake writes, or without a macro of the host compiler's options"
#endif

namespace rowset {
__device__ bool keep(std::uint32_t row);
}  // namespace rowset
