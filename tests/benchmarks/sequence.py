"""What a sequence of launches costs the host, against the same launches in turn, in one run.

python -m tests.benchmarks.sequence --output docs/benchmarks/sequence.json

Needs a GPU. Bursts are short enough that the launch queue never fills, synchronised outside the timed part; every side
is measured in every round, in turn; medians over rounds, in nanoseconds for all launches of the sequence together.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, launch

import jitlto
from jitlto import Slot
from jitlto.build.pipeline import build
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.runtime.family import KernelFamily
from tests.benchmarks import bursts
from tests.benchmarks.machine import command_line, describe
from tests.support.families import write_family

LAUNCHES, BURST = 32, 10
FAMILY = {
    "family.toml": """
[family]
name = "steps"

[entrypoint.add]
matrix = "one.json"
template = "add.cu.jinja"
params = ["const float* x", "float* y", "unsigned n"]
""",
    "one.json": "{}",
    "add.cu.jinja": """
__global__ void add(const float* x, float* y, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += x[i];
}
""",
}
N = 1024


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    Device(0).set_current()
    with tempfile.TemporaryDirectory() as directory:
        os.environ["JITLTO_CACHE_DIR"] = str(Path(directory, "cache"))
        path = write_family(Path(directory, "family"), FAMILY)
        database = build([declaration.load_family(path)], Path(directory, "steps.fragdb")).path
        result = {
            "machine": describe(command_line()),
            "launches": LAUNCHES,
            **_measure(KernelFamily("steps", FragmentDatabase(database)), options.rounds),
        }
    print(json.dumps(result, indent=1), flush=True)
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def _measure(family: KernelFamily, rounds: int) -> dict[str, object]:
    launcher, stream = family.launcher(), Device(0).create_stream()
    arrays = [cp.ones(N, np.float32), cp.ones(N, np.float32)]
    target = cp.zeros(N, np.float32)
    Device(0).sync()

    def sequence(slots: int, name: str = "x", **first: Any) -> Any:
        """A sequence whose first launches have a slot."""
        fixed: dict[str, Any] = {"x": arrays[0], "n": N}
        steps = [
            launcher.step(4, 256, *((Slot(k) if k == name and i < slots else v) for k, v in _order(fixed, target)))
            for i in range(LAUNCHES)
        ]
        return jitlto.sequence(stream, steps, **first)

    begin = time.perf_counter()
    plain = sequence(0)
    made = time.perf_counter() - begin
    plain()
    first_call = time.perf_counter() - begin - made
    one, number = sequence(1, x=arrays[0]), sequence(1, "n", n=N)
    every = sequence(LAUNCHES, x=arrays[0])
    single = sequence(0)
    single._may_use_graph = False
    values, numbers = itertools.cycle(arrays), itertools.cycle((N, N - 1))
    config, kernel = LaunchConfig(grid=4, block=256), launcher.kernel
    ready = (arrays[0].data.ptr, target.data.ptr, np.uint32(N))
    builder = Device(0).create_graph_builder()
    builder.begin_building()
    for _ in range(LAUNCHES):
        launch(builder, config, kernel, *ready)
    graph = builder.end_building().complete()

    def launches() -> None:
        for _ in range(LAUNCHES):
            launcher(stream, 4, 256, arrays[0], target, N)

    def core_launches() -> None:
        for _ in range(LAUNCHES):
            launch(stream, config, kernel, *ready)

    sides: dict[str, Callable[[], object]] = {
        "launches": launches,
        "cuda.core.launch, ready pointers": core_launches,
        "sequence": plain,
        "sequence, with a slot": one,
        "sequence, a CuPy array replaced": lambda: one(x=next(values)),
        "sequence, a number replaced": lambda: number(n=next(numbers)),
        "sequence, an array of all launches replaced": lambda: every(x=next(values)),
        "sequence without a graph": single,
        "graph of cuda.core": lambda: graph.launch(stream),
    }
    if find_spec("torch"):
        import torch  # type: ignore[import-not-found,unused-ignore]

        tensors = itertools.cycle([torch.ones(N, device="cuda"), torch.ones(N, device="cuda")])
        torch.cuda.synchronize()
        other = sequence(1, x=next(tensors))
        sides["sequence, a PyTorch tensor replaced"] = lambda: other(x=next(tensors))
    for side in sides.values():
        side()
    target[...] = 0
    Device(0).sync()
    times = bursts.in_turn(sides, rounds, BURST)
    expected = len(sides) * rounds * BURST * LAUNCHES
    if float(target[0]) != expected:
        raise SystemExit(f"the launches added {float(target[0])} instead of {expected}")
    return {
        "nanoseconds": {name: bursts.figures(each) for name, each in times.items()},
        "ratios to launches, median over rounds": _ratios(times, "launches"),
        "goals: ns more for one replaced argument": 2000,
        "more_for_a_replaced_argument_ns": {
            name.partition(", ")[2]: round(
                statistics.median(map(float.__sub__, each, times["sequence, with a slot"])), 1
            )
            for name, each in times.items()
            if name.endswith("replaced")
        },
        "calls_of_the_driver_ns": _driver_calls(every, rounds),
        "made_ms": round(1000 * made, 3),
        "first_call_ms": round(1000 * first_call, 3),
    }


def _order(fixed: dict[str, Any], target: Any) -> list[tuple[str, Any]]:
    return [("x", fixed["x"]), ("y", target), ("n", fixed["n"])]


def _driver_calls(sequence: Any, rounds: int) -> dict[str, object]:
    """The calls that a sequence makes, alone."""
    handle, graph, packed = sequence._handle, sequence._graph, sequence._launches[0]
    return {
        name: bursts.figures(each)
        for name, each in bursts.in_turn(
            {
                "cuStreamIsCapturing": lambda: driver.cuStreamIsCapturing(handle),
                "cuGraphLaunch": lambda: driver.cuGraphLaunch(graph._executable, handle),
                "cuGraphExecKernelNodeSetParams": graph._updates[0],
                "cuLaunchKernelEx": lambda: packed.issue(handle),
            },
            rounds,
            BURST,
        ).items()
    }


def _ratios(times: dict[str, list[float]], base: str) -> dict[str, float]:
    return {
        name: round(statistics.median(a / b for a, b in zip(each, times[base], strict=True)), 3)
        for name, each in times.items()
    }


if __name__ == "__main__":
    main()
