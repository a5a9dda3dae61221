"""A kernel's time inside ``jax.jit``, against the same kernel in a captured graph.

python -m tests.benchmarks.jax_call --output docs/benchmarks/jax_call.json

Needs a GPU, JAX and CuPy; takes about 40 seconds. A program is a chain of 50 dependent calls of the kernel ``square``;
the graph is captured from the same launches, ping-pong between two arrays. Both are repeated until a round takes 20 ms
or more, synchronised at its end, in turn; medians over rounds, per launch. Chains of 150 calls tell what each further
call costs, without what a program costs as a whole. JAX compiles with its default flags in one process, and with
foreign calls in command buffers in another: with ``--one`` those that are set.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import cupy as cp
import jax
import numpy as np

from jitlto import jax_call
from tests.benchmarks import script
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import in_turn, seconds
from tests.support.families import built
from tests.support.operators import FAMILY, declare
from tests.support.process import ROOT

CHAIN, LONGER = 50, 150
SIZES = (1 << 10, 1 << 20, 1 << 22, 1 << 24, 1 << 26)  # elements of float32
LEAST = 0.02  # seconds of a round
FLAGS = {
    "as it comes": "",
    "in command buffers": "--xla_gpu_enable_command_buffer=FUSION,CUSTOM_CALL --xla_gpu_graph_min_graph_size=1",
}


def measure(options: Options) -> Result:
    """What processes of their own measure, with other flags: XLA reads them once."""
    if not options.one:
        return {name: _process(flags) for name, flags in FLAGS.items()}
    operator = declare(built(options.place, FAMILY, "operators"), "jitlto_benchmark")["square"]
    return {"sizes": [_measure(operator, size, options.rounds) for size in SIZES]}


def _process(flags: str) -> object:
    command = [sys.executable, "-m", "tests.benchmarks.jax_call", "--one"]
    environment = os.environ | {"XLA_FLAGS": flags}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return json.loads(done.stdout)["sizes"]


def _measure(operator: Any, size: int, rounds: int) -> dict[str, object]:
    """Times of a launch in a program of JAX and in a graph, in microseconds, and their ratio."""
    equal, short = _times(operator, size, rounds, CHAIN)
    longer_equal, longer = _times(operator, size, rounds, LONGER)
    further = {name: (longer[name] - short[name]) / (LONGER - CHAIN) for name in short}
    return {
        "elements": size,
        "results_equal": equal and longer_equal,
        "jax_us": round(short["jax"] / CHAIN, 3),
        "graph_us": round(short["graph"] / CHAIN, 3),
        "ratio": round(short["jax"] / short["graph"], 3),
        "further": {name: round(value, 3) for name, value in further.items()},
        "further_ratio": round(further["jax"] / further["graph"], 3),
    }


def _times(operator: Any, size: int, rounds: int, length: int) -> tuple[bool, dict[str, float]]:
    """Return whether results are equal, and the microseconds of a chain on both sides."""
    square = jax_call(operator)

    def chain(x: Any) -> Any:
        for _ in range(length):
            x = square(x, 1.0)
        return x

    host = np.linspace(0.5, 1.0, size, dtype=np.float32)
    x = jax.numpy.asarray(host)
    program = jax.jit(chain).lower(x).compile()
    call = operator.resolve(operator.bind([((size,), "float32"), 1.0]))
    launcher, stream = operator.launcher(call), cp.cuda.Stream(non_blocking=True)
    # Memory of JAX's: that of another allocator may be faster or slower by a few percent.
    owners = [jax.numpy.full(size, number, np.float32) for number in range(2)]
    first, arrays = cp.from_dlpack(x), [cp.from_dlpack(owner) for owner in owners]
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        for number in range(length):
            source = arrays[(number - 1) % 2] if number else first
            launcher(stream, call.launch.grid, call.launch.block, source, arrays[number % 2], size, 1.0)
        graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    equal = bool((np.asarray(program(x)) == cp.asnumpy(arrays[(length - 1) % 2])).all())
    sides: dict[str, Callable[[int], object]] = {
        "jax": lambda times: _repeated(program, x, times),
        "graph": lambda times: ([graph.launch(stream) for _ in range(times)], stream.synchronize()),
    }
    repeats = {name: _repeats(side) for name, side in sides.items()}
    work = {name: lambda name=name: sides[name](repeats[name]) for name in sides}
    times = in_turn(work, rounds, seconds)
    return equal, {name: 1e6 * statistics.median(each) / repeats[name] for name, each in times.items()}


def _repeated(program: Callable[[Any], Any], x: Any, times: int) -> None:
    """Run a program, and drop each result before the next one: XLA records a command buffer anew for other memory."""
    result = None
    for _ in range(times):
        del result
        result = program(x)
    if result is not None:
        result.block_until_ready()


def _repeats(side: Callable[[int], object]) -> int:
    """Return how often to repeat a side for a round that is long enough."""
    side(3)
    times = 1
    while True:
        begin = time.perf_counter()
        side(times)
        if time.perf_counter() - begin > LEAST or times > 1000:
            return times
        times *= 2


if __name__ == "__main__":
    script.run(__doc__, measure, rounds=15, one=False)
