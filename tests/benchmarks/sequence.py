"""What a sequence of launches costs the host, against the same launches in turn, in one run.

python -m tests.benchmarks.sequence --output docs/benchmarks/sequence.json

Needs a GPU. Bursts are short enough that the launch queue never fills, synchronised outside the timed part; every side
is measured in every round, in turn; medians over rounds, in nanoseconds for all launches of the sequence together.
"""

import itertools
import time
from collections.abc import Callable
from typing import Any

import cupy as cp
import numpy as np
from cuda.core import Device, LaunchConfig, launch

import jitlto
from jitlto import Slot
from jitlto.runtime.family import KernelFamily
from tests.benchmarks import script
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import beyond, in_bursts, ratio, summaries, synchronize
from tests.support.families import built

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


def measure(options: Options) -> Result:
    Device(0).set_current()
    return {"launches": LAUNCHES, **_measure(built(options.place, FAMILY, "steps"), options.rounds)}


def _measure(family: KernelFamily, rounds: int) -> dict[str, object]:
    launcher, stream = family.launcher(), Device(0).create_stream()
    arrays = [cp.ones(N, np.float32), cp.ones(N, np.float32)]
    target = cp.zeros(N, np.float32)
    synchronize()

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
    for side in sides.values():
        side()
    target[...] = 0
    synchronize()
    times = in_bursts(sides, rounds, BURST)
    expected = len(sides) * rounds * BURST * LAUNCHES
    if float(target[0]) != expected:
        raise SystemExit(f"the launches added {float(target[0])} instead of {expected}")
    return {
        "nanoseconds": summaries(times),
        "ratios to launches, median over rounds": {name: ratio(times, name, "launches") for name in times},
        "more_for_a_replaced_argument_ns": {
            name.partition(", ")[2]: beyond(times, name, "sequence, with a slot")
            for name in times
            if name.endswith("replaced")
        },
        "made_ms": round(1000 * made, 3),
        "first_call_ms": round(1000 * first_call, 3),
    }


def _order(fixed: dict[str, Any], target: Any) -> list[tuple[str, Any]]:
    return [("x", fixed["x"]), ("y", target), ("n", fixed["n"])]


if __name__ == "__main__":
    script.run(__doc__, measure, rounds=200)
