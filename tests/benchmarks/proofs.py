"""All kernels of a shipped family linked in shares side by side, and again with nothing changed.

Builds the family, then runs ``jitlto check --link`` for each share in a process of its own, as many at once as there
are cores, and counts the calls of nvJitLink in them: those of the links, and those that compare inline functions.

python -m tests.benchmarks.proofs --shares 16 --output docs/benchmarks/proofs.json
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.benchmarks import script
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import seconds

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


def measure(options: Options) -> Result:
    script.use_cores(options.cores)
    database: Path = options.place / f"{options.family}.fragdb"
    built = seconds(lambda: script.jitlto("build", options.family, "-o", database, "--quiet"))
    result: Result = {"cores": options.cores, "shares": options.shares, "build, s": round(built, 2)}
    for when in ("first", "again, with nothing changed"):
        result[when] = _checked(database, options)
    if again := result["again, with nothing changed"]["calls of nvJitLink"]:
        raise SystemExit(f"{again} links were made again")
    return result


def _checked(database: Path, options: Options) -> Result:
    """Run all shares; return what they took and found together."""
    found: list[tuple[int, Result]] = []

    def check() -> None:
        with ThreadPoolExecutor(options.cores) as pool:
            found.extend(pool.map(lambda number: _share(database, number, options), range(1, 1 + options.shares)))

    taken = seconds(check)
    checked = [each for _, each in found]
    links = [each for one in checked for each in one["families"]]
    return {
        "s": round(taken, 2),
        "holds": all(each["holds"] for each in checked),
        "kernels": sum(each["kernels"] for each in checked[0]["families"]),
        "proved": sum(each["linked"] for each in links),
        "known": sum(each["known"] for each in links),
        "calls of nvJitLink": sum(calls for calls, _ in found),
    }


def _share(database: Path, number: int, options: Options) -> tuple[int, Result]:
    threads = max(1, options.cores // options.shares)
    command = ["check", str(database), "--link", options.arch, "--shard", f"{number}/{options.shares}", "--json"]
    command = [sys.executable, "-c", _CHECK, *command, "--jobs", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return int(done.stderr.split()[-1]), json.loads(done.stdout)


if __name__ == "__main__":
    cores = len(os.sched_getaffinity(0))
    script.run(__doc__, measure, family="ivf_flat", arch="sm_90", shares=16, cores=cores)
