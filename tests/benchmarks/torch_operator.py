"""What an operator of PyTorch costs above the launch of its kernel.

python -m tests.benchmarks.torch_operator --output docs/benchmarks/torch_operator.json

Needs a GPU and PyTorch; takes less than a minute. The operators of one kernel are called in bursts of 200, in turn, in
each round, synchronised outside the timed part: host time of a call, medians over rounds.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from jitlto import Operator, torch_operator
from tests.benchmarks import script
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import beyond, in_bursts, summaries
from tests.support.families import built
from tests.support.operators import FAMILY, declare

BURST = 200
LAUNCH = "the launcher, output and stream ready"
PLAIN = "a Python function: output, stream, launch"
JITLTO = "jitlto.torch_operator"
DEFINED = "Library.define + impl, by hand"
CUSTOM = "torch.library.custom_op"
WITH_BACKWARD = "jitlto.torch_operator with a backward"


def measure(options: Options) -> Result:
    torch.cuda.init()
    declared = declare(built(options.place, FAMILY, "operators"), "jitlto_benchmark")
    return {"calls": measure_calls(declared, options.rounds, torch.device("cuda:0"))}


def measure_calls(declared: dict[str, Operator], rounds: int, device: torch.device) -> Result:
    """Host time of a call of each side, in nanoseconds, and what it costs above the launch."""
    stream: Any = torch._C._cuda_getCurrentRawStream
    operator = replace(declared["square"], qualname="jitlto_benchmark::plain_square", backward=None)
    x = torch.randn(1024, device=device)
    call = operator.resolve(operator.bind([((1024,), "float32"), 1.0]))
    launcher, index = operator.launcher(call), device.index
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


if __name__ == "__main__":
    script.run(__doc__, measure, rounds=60)
