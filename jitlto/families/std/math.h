#include <cuda/std/cmath>
