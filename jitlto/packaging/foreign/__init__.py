"""Kernels that another build system declares, as families."""
