#include <cuda/std/cstdint>
