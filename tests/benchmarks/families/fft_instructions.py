"""Instructions per complex point of the transforms' kernels; needs no GPU.

The kernels have no loops and hardly a branch, so a thread executes what its code contains.
"""

from __future__ import annotations

import argparse
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from docs.examples.fft import Launch
from tests.benchmarks.families.databases import BASE, small_family
from tests.benchmarks.families.part import table
from tests.support.fft_reference import DTYPES, SIZES, TRANSFORMS
from tests.support.line_information import count_instructions

_DIRECTIONS = dict(reversed(TRANSFORMS))  # forward, where there are both


def main() -> None:
    """Print a table: a line for each size, a column for each kind and type."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.families.fft_instructions")
    parser.add_argument("--arch", default="sm_90", help="the device's architecture")
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES), help="points of a transform")
    options = parser.parse_args()
    columns = [(kind, data_type) for kind in ("c2c", "r2c", "c2r") for data_type in DTYPES]
    wanted = {
        (kind, data_type, size): {
            "kind": kind, "direction": _DIRECTIONS[kind], "data_type": data_type, "size": str(size), "load": "identity",
            "store": "identity",
        }
        for kind, data_type in columns for size in options.sizes
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor() as pool:
        family = small_family("fft", list(wanted.values()), BASE, Path(directory))
        cubins = pool.map(lambda each: family.plan(arch=options.arch, **each).link().cubin, wanted.values())
        counts = dict(zip(wanted, map(count_instructions, cubins), strict=True))
    rows = [
        (size, *(round(counts[*column, size] / _points(*column, size), 1) for column in columns))
        for size in options.sizes
    ]
    print(table(("size", *(f"{kind} {data_type.strip('_')}" for kind, data_type in columns)), rows))


def _points(kind: str, data_type: str, size: int) -> float:
    """Return the complex points of a thread: two real elements are one."""
    launch = Launch.of(size, DTYPES[data_type], kind)
    return launch.rows * (size if kind == "c2c" else size // 2) / launch.block


if __name__ == "__main__":
    main()
