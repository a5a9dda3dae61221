extern "C" __device__ float factor(unsigned row) { return 1.0f / (row + 1); }
