"""One command: all parts, or some, each in a process of its own, so that none falls with another.

python -m tests.benchmarks.families --output docs/benchmarks
python -m tests.benchmarks.families --output /tmp/try --small --only fft
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Each part: its module, and what it tells.
PARTS = {
    "modes": "kernel time: LTO, whole program, separate compilation, mixed, pointers",
    "ivf_flat": "queries per second of the index against brute force",
    "fft": "transforms against cuFFT, alone and between element-wise kernels",
    "first_call": "from the first call to a kernel ready to launch",
    "shipped": "bytes of a database against cubins of all kernels",
}
_LIMIT = 540  # seconds for a part


def main() -> None:
    """Run parts, print tables, write JSON and plots; 1 if any failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.families",
                                     description="Measure the families against what one would do without jitlto.",
                                     epilog="\n".join(f"{name:11} {what}" for name, what in PARTS.items()),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--output", type=Path, required=True, help="where JSON and plots are written")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="this part; may be given several times")
    parser.add_argument("--small", action="store_true", help="sizes to try it out; no figure means anything")
    parser.add_argument("--rounds", type=int, default=25, help="timed rounds")
    parser.add_argument(
        "--work", type=Path, help="where databases are built and kept; by default a temporary directory"
    )
    options = parser.parse_args()
    parts = options.only or list(PARTS)
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).absolute()
        work.mkdir(parents=True, exist_ok=True)
        if len(parts) == 1:
            raise SystemExit(_run(parts[0], options.output, work, options.small, options.rounds))
        outcomes = {part: _apart(part, options, work) for part in parts}
    print("\n".join(f"{part:11} {outcome}" for part, outcome in outcomes.items()))
    raise SystemExit(any(outcome != "done" for outcome in outcomes.values()))


def _apart(part: str, options: argparse.Namespace, work: Path) -> str:
    """One part in a process of its own."""
    chosen = ["--only", part, "--output", str(options.output), "--work", str(work), "--rounds", str(options.rounds)]
    command = [sys.executable, "-m", "tests.benchmarks.families", *chosen, *(["--small"] if options.small else [])]
    print(f"== {part}: {PARTS[part]}", flush=True)
    try:
        status = subprocess.run(command, timeout=_LIMIT, check=False).returncode
    except subprocess.TimeoutExpired:
        return f"stopped after {_LIMIT} s"
    return "done" if status == 0 else f"failed: exit status {status}"


def _run(part: str, output: Path, work: Path, small: bool, rounds: int) -> int:
    """One part in this process."""
    # What is linked is linked: neither nvJitLink nor the driver keeps it, and the cache is the benchmark's own.
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    os.environ["JITLTO_CACHE_DIR"] = str(work / "cache")
    os.environ.pop("JITLTO_CACHE", None)
    from jitlto.base.errors import JitltoError
    from tests.benchmarks.families.part import Options
    from tests.benchmarks.machine import describe

    module = importlib.import_module(f"tests.benchmarks.families.{part}")
    begin = time.perf_counter()
    try:
        outcome = module.run(Options(work, small, rounds))
    except JitltoError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    command = f"python -m tests.benchmarks.families --only {part}{' --small' if small else ''} --rounds {rounds}"
    result = {"machine": describe(command), "seconds": round(time.perf_counter() - begin, 1), **outcome.data}
    if outcome.failures:
        result["failures"] = list(outcome.failures)
    (output / f"families_{part}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    for end, plot in outcome.plots.items():
        (output / f"families_{part}{'_' if end else ''}{end}.svg").write_text(plot)
    print(outcome.text, flush=True)
    for failure in outcome.failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    main()
