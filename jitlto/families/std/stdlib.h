#include <cuda/std/cstdlib>
