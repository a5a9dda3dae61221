"""From a plan to a cubin: the kernel cache, packs and single-flight linking."""
