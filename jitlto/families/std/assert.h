#include <cuda/std/cassert>
