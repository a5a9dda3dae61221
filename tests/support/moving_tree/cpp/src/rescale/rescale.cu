#include <common/keep.cuh>
extern "C" __device__ float factor(unsigned row);
extern "C" __global__ void rescale(float* rows, unsigned n) {
  unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < n && rowset::keep(row)) rows[row] *= factor(row);
}
