#include <cuda/std/cfloat>
