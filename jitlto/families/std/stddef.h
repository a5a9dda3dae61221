#include <cuda/std/cstddef>
