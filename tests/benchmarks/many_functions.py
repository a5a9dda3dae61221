"""What grows with the functions of a kernel: the time of a plan with its inline functions, of a check with its groups.

Builds kernels that hold so many inline functions, and kernels that call a function of each of so many device groups.
Then plans the former and checks the latter, with nothing in a cache. Needs no GPU.

python -m tests.benchmarks.many_functions --output docs/benchmarks/many_functions.json
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jitlto.build.pipeline import build
from jitlto.check.check import check
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.runtime.family import KernelFamily
from tests.benchmarks.machine import command_line, describe
from tests.support.families import write_family

_HEAD = '[family]\nname = "many"\n\n[entrypoint.kernel]\nmatrix = "one.json"\ntemplate = "kernel.cu.jinja"\n'


def inline_functions(count: int) -> dict[str, str]:
    """Return the files of a family whose kernel has so many variables of a template, each a weak symbol."""
    sums = "\n".join(f"r += table<{n}>[j];" for n in range(count))
    kernel = f"""template <int I> __device__ float table[2] = {{I, I + 1}};
extern "C" __global__ void kernel(float* p, int j) {{ float r = 0;\n{sums}\np[0] = r; }}
"""
    return {"family.toml": _HEAD, "one.json": "{}", "kernel.cu.jinja": kernel}


def device_groups(count: int) -> dict[str, str]:
    """Return the files of a family whose kernel calls a function of each of so many groups, which share no symbol."""
    group = '\n[device.g{0}]\nmatrix = "one.json"\ntemplate = "g{0}.cu.jinja"\ninterface = false\n'
    declared = "\n".join(f"__device__ float f{n}(float x);" for n in range(count))
    calls = "\n".join(f"r = f{n}(r);" for n in range(count))
    kernel = f'{declared}\nextern "C" __global__ void kernel(float* p) {{ float r = p[0];\n{calls}\np[0] = r; }}\n'
    sources = {
        f"g{n}.cu.jinja": f"__device__ inline float own{n}(float x) {{ return x * {n + 1}; }}\n"
        f"__device__ float f{n}(float x) {{ return own{n}(x); }}\n"
        for n in range(count)
    }
    text = _HEAD + "".join(map(group.format, range(count)))
    return {"family.toml": text, "one.json": "{}", "kernel.cu.jinja": kernel, **sources}


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--functions", type=int, nargs="*", default=[1532, 3064, 6128])
    parser.add_argument("--groups", type=int, nargs="*", default=[30, 60, 120, 240])
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    result: dict[str, Any] = {**describe(command_line()), "cores": len(os.sched_getaffinity(0))}

    def measure(what: str, files: dict[str, str], run: Callable[[FragmentDatabase], object]) -> None:
        with tempfile.TemporaryDirectory() as directory:
            family = declaration.load_family(write_family(Path(directory) / "many", files))
            with FragmentDatabase(build([family], Path(directory) / "many.fragdb").path) as database:
                result[what] = min(_seconds(lambda: run(database)) for _ in range(options.repeat))
        print(f"{what}: {result[what]}", flush=True)

    for count in options.functions:
        measure(f"plan, {count} inline symbols, s", inline_functions(count), _plan)
    for count in options.groups:
        measure(f"check, {count} groups, s", device_groups(count), lambda database: check(database, use_cache=False))
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def _plan(database: FragmentDatabase) -> None:
    KernelFamily("many", database).plan(arch="sm_90")


def _seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return round(time.perf_counter() - begin, 3)


if __name__ == "__main__":
    main()
