"""All that touches NVIDIA's libraries: toolkit discovery, NVRTC, nvJitLink, nvFatbin, nvdisasm and the driver."""
