"""How long the family `search` takes to build from nothing, as a user runs it: the whole command, in a fresh process.

python -m tests.benchmarks.build_search --cores 2 --output docs/benchmarks/build_search_cu12.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.machine import command_line, describe


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2, help="cores that the command may use")
    options = parser.parse_args()

    os.sched_setaffinity(0, set(list(os.sched_getaffinity(0))[: options.cores]))
    times, digests = [], set()
    with tempfile.TemporaryDirectory() as directory:
        for run in range(options.runs):
            database = Path(directory) / f"{run}.fragdb"
            begin = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "jitlto", "build", "search", "-o", str(database), "--json"],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
            times.append(time.perf_counter() - begin)
            built = json.loads(done.stdout)
            digests.add(built["digest"])
    if len(digests) != 1:
        raise SystemExit(f"the builds differ: {digests}")
    result = {
        "machine": describe(command_line()),
        "fragments": len(built["fragments"]),
        "digest": digests.pop(),
        "seconds": [round(t, 2) for t in times],
        "median_seconds": round(statistics.median(times), 2),
    }
    print(f"{result['fragments']} fragments: median {result['median_seconds']} s of {result['seconds']}")
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
