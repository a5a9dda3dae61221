"""A benchmark in another checkout and in this one, in turn on one machine: what a change made slower.

The other checkout needs its compiled core, if this one has it. Its directory's name stands in the result.

python -m tests.benchmarks.in_turn --other ../916e4ac1 --benchmark "merging --parts 20" --rounds 2 --output FILE
python -m tests.benchmarks.in_turn --other ../916e4ac1 --command "build search -o @/x.fragdb --no-cache" --rounds 7

A command of jitlto is timed as a whole process, once more at first; ``@`` is a directory that each checkout has alone.
"""

import compileall
import json
import os
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks import script
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import in_turn, ratio, seconds, summaries
from tests.support.process import ROOT


def measure(options: Options) -> Result:
    checkouts: dict[str, Path] = {options.other.name: options.other.resolve(), "this": ROOT}
    if options.command:
        return {"command": options.command, "seconds": _time_command(checkouts, options)}
    results: dict[str, list[Any]] = {name: [] for name in checkouts}
    for _ in range(options.rounds):
        for name, root in checkouts.items():
            results[name].append(_run_benchmark(root, shlex.split(options.benchmark), options.place / "result.json"))
    return {"benchmark": options.benchmark, "results": results}


def _time_command(checkouts: dict[str, Path], options: Options) -> Result:
    sides = {}
    for name, root in checkouts.items():
        compileall.compile_dir(root / "jitlto", quiet=1)  # as pip leaves a package that it installs
        own = options.place / name
        own.mkdir()
        arguments = [each.replace("@", str(own)) for each in shlex.split(options.command)]
        sides[name] = partial(_run, root, ["jitlto", *arguments], JITLTO_CACHE_DIR=str(own / "cache"))
    times = in_turn(sides, options.rounds, seconds, warm=1)
    return {**summaries(times), "this/other": ratio(times, "this", options.other.name)}


def _run_benchmark(root: Path, benchmark: list[str], output: Path) -> Any:
    _run(root, [f"tests.benchmarks.{benchmark[0]}", *benchmark[1:], "--output", str(output)])
    result = json.loads((next(output.glob("*.json")) if output.is_dir() else output).read_text())
    return {name: value for name, value in result.items() if name != "machine"}


def _run(root: Path, module: list[str], **variables: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(root)} | variables
    subprocess.run([sys.executable, "-m", *module], cwd=root, env=environment, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    script.run(__doc__, measure, other=Path, benchmark="", command="", rounds=1)
