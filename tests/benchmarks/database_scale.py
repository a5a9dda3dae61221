"""What a first plan costs against the number of fragments.

Synthetic families of one group of kernels and one of functions, half of the fragments each, with three parameters.
Fresh processes in turn open a database, plan a kernel and compute its digest, with nothing cached; what is imported for
that is imported before.

python -m tests.benchmarks.database_scale --sizes 32 1000 10000 100000 --runs 15
"""

import json
import sqlite3
from functools import partial
from pathlib import Path

from tests.benchmarks import script, svg
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import seconds, summary
from tests.support import synthetic

_FIGURES = ("open, plan and digest, ms", "the same, CPU ms", "memory, MB")
_PLAN = """
import json, resource, sys, time
from jitlto import load
from jitlto.cuda import nvjitlink
from jitlto.plan import resolve
from jitlto.link import requests
from jitlto.plan import planner
from jitlto import database
nvjitlink.version()
def memory():
    return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
before, begin, cpu = memory(), time.perf_counter(), time.process_time()
family = load("family", sys.argv[1])
digest = family.plan(arch="sm_90", **json.loads(sys.argv[2])).digest
seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
print(json.dumps([1000 * seconds, 1000 * cpu, (memory() - before) / 1024, digest]))
"""


def measure(options: Options) -> Result:
    place: Path = options.place
    paths = {size: place / f"{size}.fragdb" for size in options.sizes}
    written = {size: seconds(partial(synthetic.write_family, path, size)) for size, path in paths.items()}
    planned: dict[int, list[list[float]]] = {size: [] for size in paths}
    for _ in range(options.runs + 1):
        for size, path in paths.items():
            asked = json.dumps(synthetic.middle(size))
            planned[size].append(script.answer(_PLAN, path, asked, JITLTO_CACHE="off")[:-1])
    result: Result = {"sqlite": sqlite3.sqlite_version, "sizes": {}}
    for size, path in paths.items():
        columns = zip(_FIGURES, zip(*planned[size][1:], strict=True), strict=True)
        figures = {name: summary(values) | {"least": min(values)} for name, values in columns}
        file = round(path.stat().st_size / 1e6, 2)
        result["sizes"][size] = {"write, s": round(written[size], 2), "file, MB": file, **figures}
    return result


def plots(result: Result) -> dict[str, str]:
    groups = [
        svg.Group(f"{size:,}", [svg.Value.of(figures[name]) for name in _FIGURES[:2]])
        for size, figures in result["sizes"].items()
    ]
    title = "A first plan against the number of fragments"
    return {"": svg.bars(title, ["clock", "processor"], groups, "milliseconds; quartiles")}


if __name__ == "__main__":
    script.run(__doc__, measure, plots, sizes=[32, 1000, 10_000], runs=15)
