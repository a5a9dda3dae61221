"""All kernels of a shipped family linked in shares side by side, and again with nothing changed.

Builds the family, then runs ``jitlto check --link`` for each share in a process of its own, as many at once as there
are cores, and counts the calls of nvJitLink in them: those of the links, and those that compare inline functions.

python -m tests.benchmarks.proofs --shares 16 --output docs/benchmarks/proofs.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.benchmarks.machine import command_line, describe

_CHECK = """
import sys
from threading import Lock
from jitlto.cli import main
from jitlto.cuda import nvjitlink
link, lock, calls = nvjitlink.link, Lock(), 0
def counted(*arguments, **options):
    global calls
    with lock:
        calls += 1
    return link(*arguments, **options)
nvjitlink.link = counted
try:
    main()
finally:
    print(calls, file=sys.stderr)
"""


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--family", default="ivf_flat")
    parser.add_argument("--database", type=Path, help="a database that is built already")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--shares", type=int, default=16)
    parser.add_argument("--run", type=int, help="make the first so many shares only, for a trial")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: options.cores]))
    result: dict[str, Any] = {
        **describe(command_line()), "cores": options.cores,
        "shares": options.shares, "shares run": options.run or options.shares,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        os.environ |= {"JITLTO_CACHE_DIR": directory, "JITLTO_CACHE": "on"}
        database = options.database or _build(options.family, Path(directory), result)
        for when in ("first", "again, with nothing changed"):
            result[when] = figures = _checked(database, options)
            print(f"{when}: {figures}", flush=True)
    if again := result["again, with nothing changed"]["calls of nvJitLink"]:
        raise SystemExit(f"{again} links were made again")
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def _build(family: str, place: Path, result: dict[str, Any]) -> Path:
    path, begin = place / f"{family}.fragdb", time.perf_counter()
    subprocess.run([sys.executable, "-m", "jitlto", "build", family, "-o", str(path), "--quiet"], check=True)
    result["build, s"] = round(time.perf_counter() - begin, 2)
    return path


def _checked(database: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run all shares; return what they took and found together."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(options.cores) as pool:
        shares = list(pool.map(lambda n: _share(database, n, options), range(1, 1 + (options.run or options.shares))))
    seconds = time.perf_counter() - begin
    checked = [found for _, _, found in shares]
    links = [each for found in checked for each in found["link"]["families"]]
    return {
        "s": round(seconds, 2),
        "a share, s": [round(took, 2) for took, _, _ in shares],
        "holds": all(found["holds"] for found in checked),
        "kernels": sum(each["kernels"] for each in checked[0]["families"]),
        "proved": sum(each["linked"] for each in links),
        "known": sum(each["known"] for each in links),
        "calls of nvJitLink": sum(calls for _, calls, _ in shares),
    }


def _share(database: Path, number: int, options: argparse.Namespace) -> tuple[float, int, dict[str, Any]]:
    threads = max(1, options.cores // options.shares)
    command = ["check", str(database), "--link", options.arch, "--shard", f"{number}/{options.shares}", "--json"]
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _CHECK, *command, "--jobs", str(threads)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return time.perf_counter() - begin, int(done.stderr.split()[-1]), json.loads(done.stdout)


if __name__ == "__main__":
    main()
