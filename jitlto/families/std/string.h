#include <cuda/std/cstring>
