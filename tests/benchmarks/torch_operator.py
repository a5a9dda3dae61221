"""What an operator of PyTorch costs above the launch of its kernel, and what a compiled model with one gains.

python -m tests.benchmarks.torch_operator --output docs/benchmarks/torch_operator.json

Needs a GPU and PyTorch; takes less than a minute. The operators of one kernel are called in bursts of 200, in turn, in
each round, synchronised outside the timed part: host time of a call, medians over rounds. The model is timed with its
synchronisation, so host or GPU counts, whichever takes longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from jitlto import Operator, torch_operator
from tests.benchmarks import script
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import beyond, in_bursts, in_turn, summaries, wall_milliseconds
from tests.support.families import built
from tests.support.operators import FAMILY, declare

BURST, CALLS_OF_MODEL = 200, 50
LAUNCH = "the launcher, output and stream ready"
PLAIN = "a Python function: output, stream, launch"
JITLTO = "jitlto.torch_operator"
DEFINED = "Library.define + impl, by hand"
CUSTOM = "torch.library.custom_op"
WITH_BACKWARD = "jitlto.torch_operator with a backward"


def measure(options: Options) -> Result:
    torch.cuda.init()
    declared = declare(built(options.place, FAMILY, "operators"), "jitlto_benchmark")
    device = torch.device("cuda:0")
    return {
        "calls": measure_calls(declared, options.rounds, device),
        "model": measure_model(declared, options.rounds, device),
    }


def measure_calls(declared: dict[str, Operator], rounds: int, device: torch.device) -> Result:
    """Host time of a call of each side, in nanoseconds, and what it costs above the launch."""
    stream: Any = torch._C._cuda_getCurrentRawStream
    operator = replace(declared["square"], qualname="jitlto_benchmark::plain_square", backward=None)
    x = torch.randn(1024, device=device)
    call = operator.resolve(operator.bind([((1024,), "float32"), 1.0]))
    launcher, index = operator.loaded.launcher(**operator.how(call)), device.index
    assert call.launch is not None
    grid, block = call.launch.grid, call.launch.block
    ready, handle = torch.empty_like(x), stream(index) or 1

    def plain(x: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        y = torch.empty_like(x)
        launcher(stream(index) or 1, grid, block, x, y, 1024, factor)
        return y

    library = torch.library.Library("jitlto_by_hand", "FRAGMENT")
    library.define("square(Tensor x, float factor=1.0) -> Tensor")
    library.impl("square", plain, device.type.upper())
    custom = torch.library.custom_op("jitlto_by_hand::custom", plain, mutates_args=())
    defined, made = torch.ops.jitlto_by_hand.square.default, torch_operator(operator)
    with_backward = torch_operator(declared["square"])
    sides: dict[str, Callable[[], object]] = {
        LAUNCH: lambda: launcher(handle, grid, block, x, ready, 1024, 2.0),
        PLAIN: lambda: plain(x, 2.0),
        DEFINED: lambda: defined(x, 2.0),
        JITLTO: lambda: made(x, 2.0),
        WITH_BACKWARD: lambda: with_backward(x, 2.0),
        CUSTOM: lambda: custom(x, 2.0),
        "torch.square": lambda: torch.square(x),
    }
    for name, side in sides.items():
        found = side()
        expected = x.square() * (1 if name == "torch.square" else 2)
        torch.testing.assert_close(ready if found is None else found, expected)
    times = in_bursts(sides, rounds, BURST)
    above = {name: {"above_the_launch": beyond(times, name, LAUNCH)} for name in sides}
    return {name: figures | above[name] for name, figures in summaries(times).items()}


def measure_model(declared: dict[str, Operator], rounds: int, device: torch.device) -> Result:
    """Milliseconds of a small model with two operators in the middle: interpreted, compiled, and as a CUDA graph."""
    square, reduce_rows = torch_operator(declared["square"]), torch_operator(declared["reduce_rows"])
    torch.manual_seed(1)
    first, last = (torch.nn.Linear(256, 256, device=device) for _ in range(2))

    def model(x: torch.Tensor) -> torch.Tensor:
        y = square(torch.nn.functional.gelu(first(x)), 0.5)
        values, counts = reduce_rows(y)
        return torch.tanh(last(torch.relu(y - (values / counts)[:, None])))

    x = torch.randn(64, 256, device=device)
    with torch.no_grad():
        explained = torch._dynamo.explain(model)(x)
        torch._dynamo.reset()
        sides = {
            "eager": model,
            "compiled": torch.compile(model, fullgraph=True),
            "reduce-overhead": torch.compile(model, fullgraph=True, mode="reduce-overhead"),
        }
        begin = time.perf_counter()
        difference = 0.0
        for side in sides.values():
            for _ in range(5):  # compiles, warms up, and records the graph
                difference = max(difference, float((side(x) - model(x)).abs().max()))
        compiling = time.perf_counter() - begin
        calls = {name: lambda side=side: [side(x) for _ in range(CALLS_OF_MODEL)] for name, side in sides.items()}
        times = in_turn(calls, rounds, wall_milliseconds)
    return {
        "graph_breaks": explained.graph_break_count,
        "graphs": explained.graph_count,
        "largest_difference_from_eager": difference,
        "seconds_to_compile": round(compiling, 1),
        f"milliseconds of {CALLS_OF_MODEL}": summaries(times),
    }


if __name__ == "__main__":
    script.run(__doc__, measure, rounds=60)
