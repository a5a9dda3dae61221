"""How kernels of the family ``segment_reduce`` are launched."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    """The launch configuration of a kernel, following ``place.cuh`` of the family.

    Attributes:
        grid: Blocks; 0 if there is nothing to launch.
        block: Threads per block.
        veclen: Neighbouring columns of a thread, a parameter of the kernel.
    """

    grid: int
    block: int
    veclen: int

    @classmethod
    def of(cls, rows: int, width: int, dtype: str) -> Launch:
        """Return the launch configuration for rows of ``width`` numbers of float32, float16 or bfloat16."""
        most = 4 if dtype == "float32" else 8  # of 16 bytes
        veclen = next(v for v in (8, 4, 2, 1) if v <= most and width % v == 0)
        vectors = width // veclen
        tiles = -(-vectors // 32)
        if tiles == 0:
            return cls(0, 256, veclen)
        lanes = 256 // -(-vectors // tiles)
        sets = -(-rows // lanes)
        # Several sets of rows for a block where there are blocks enough for large devices all the same. Rows of a few
        # sets may be long, and all blocks share them.
        share = max(1, min(8, sets * tiles // 4096))
        return cls(max(-(-sets // share), min(rows, -(-1024 // tiles))) * tiles, 256, veclen)
