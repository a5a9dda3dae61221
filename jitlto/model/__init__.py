"""Pure values and rules shared by both wings; no I/O and no CUDA library."""
