#include <cuda/std/climits>
