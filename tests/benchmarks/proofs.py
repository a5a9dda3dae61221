"""All kernels of a shipped family linked, and again with nothing changed.

Builds the family, then runs ``jitlto check --link`` in a process of its own, and counts the calls of nvJitLink in it:
those of the links, and those that compare inline functions.

python -m tests.benchmarks.proofs --output docs/benchmarks/proofs.json
"""

import json
import os
import subprocess
import sys
import time
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
    result: Result = {"cores": options.cores, "build, s": round(built, 2)}
    for when in ("first", "again, with nothing changed"):
        result[when] = _checked(database, options)
    if again := result["again, with nothing changed"]["calls of nvJitLink"]:
        raise SystemExit(f"{again} links were made again")
    return result


def _checked(database: Path, options: Options) -> Result:
    command = ["check", str(database), "--link", options.arch, "--json", "--jobs", str(options.cores)]
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", _CHECK, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    result: Result = {"s": round(time.perf_counter() - begin, 2), "calls of nvJitLink": int(done.stderr.split()[-1])}
    families = json.loads(done.stdout)["families"]
    return result | {name: sum(each[name] for each in families) for name in ("kernels", "linked", "known")}


if __name__ == "__main__":
    cores = len(os.sched_getaffinity(0))
    script.run(__doc__, measure, family="ivf_flat", arch="sm_90", cores=cores)
