"""A benchmark in another checkout and in this one, in turn on one machine: what a change made slower.

The other checkout needs its compiled core, if this one has it. Its directory's name stands in the result.

python -m tests.benchmarks.in_turn --other ../916e4ac1 --benchmark "merging --parts 20" --rounds 2 --output FILE
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks import script
from tests.benchmarks.script import Options, Result
from tests.support.process import ROOT


def measure(options: Options) -> Result:
    checkouts: dict[str, Path] = {options.other.name: options.other.resolve(), "this": ROOT}
    results: dict[str, list[Any]] = {name: [] for name in checkouts}
    for _ in range(options.rounds):
        for name, root in checkouts.items():
            results[name].append(_run(root, shlex.split(options.benchmark), options.place / "result.json"))
    return {"benchmark": options.benchmark, "results": results}


def _run(root: Path, benchmark: list[str], output: Path) -> Any:
    command = [sys.executable, "-m", f"tests.benchmarks.{benchmark[0]}", *benchmark[1:], "--output", str(output)]
    subprocess.run(command, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}, stdout=subprocess.DEVNULL, check=True)
    result = json.loads(output.read_text())
    return {name: value for name, value in result.items() if name != "machine"}


if __name__ == "__main__":
    script.run(__doc__, measure, other=Path, benchmark=str, rounds=1)
