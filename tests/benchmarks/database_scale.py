"""What a first plan costs against the number of fragments, and what it answers from a damaged database.

Synthetic families of one group of kernels and one of functions, half of the fragments each, with three parameters.
Fresh processes in turn open a database, plan a kernel and compute its digest, with nothing cached; what is imported for
that is imported before. Damage: bytes are changed one after the other, half of them in the rows that the plan reads.

python -m tests.benchmarks.database_scale --sizes 32 1000 10000 100000 --runs 15 --damage 10000
"""

import json
import random
import sqlite3
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from jitlto.base.errors import JitltoError
from jitlto.database import FragmentDatabase
from jitlto.runtime.family import KernelFamily
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
    if options.damage:
        result["damage"] = damage(synthetic.write_family(place / "damaged.fragdb", 1000), 1000, options.damage)
    return result


def plots(result: Result) -> dict[str, str]:
    groups = [
        svg.Group(f"{size:,}", [svg.Value.of(figures[name]) for name in _FIGURES[:2]])
        for size, figures in result["sizes"].items()
    ]
    title = "A first plan against the number of fragments"
    return {"": svg.bars(title, ["clock", "processor"], groups, "milliseconds; quartiles")}


def damage(path: Path, size: int, places: int) -> dict[str, int]:
    """Change one byte after the other; count what plans answered. Another answer is an error.

    Args:
        path: A database of ``synthetic.write_family``, which is whole again afterwards.
        size: Its number of fragments.
        places: How many bytes; half of them in rows that the plan reads.
    """
    configuration = synthetic.middle(size)
    expected, touched = _answer(path, configuration)
    data, chance = path.read_bytes(), random.Random(16)  # noqa: S311 - the same places every time
    ranges = [
        (at, at + len(piece))
        for text in touched
        for start in range(0, len(text), 64)
        if (piece := text[start : start + 64]) and (at := data.find(piece)) == data.rfind(piece) != -1
    ]
    outcome: Counter[str] = Counter()
    with path.open("r+b", buffering=0) as file:
        for number in range(places):
            begin, end = chance.choice(ranges) if number % 2 else (0, len(data))
            at = chance.randrange(begin, end)
            file.seek(at)
            file.write(bytes([data[at] ^ 1 << chance.randrange(8)]))
            where = "in rows that the plan reads" if number % 2 else "anywhere"
            try:
                found, _ = _answer(path, configuration)
                if found != expected:
                    raise SystemExit(f"another answer after byte {at} changed: {found}")
                outcome[f"{where}: identical"] += 1
            except JitltoError as error:
                if str(path) not in str(error):
                    raise
                outcome[f"{where}: {type(error).__name__}"] += 1
            file.seek(at)
            file.write(data[at : at + 1])
    return dict(sorted(outcome.items()))


def _answer(path: Path, configuration: dict[str, str]) -> tuple[object, list[bytes]]:
    """Plan; return the digest and what it depends on, with the texts that were read of the database."""
    touched: list[bytes] = []
    with FragmentDatabase(path) as database:
        find = database._reader.find

        def recorded(*arguments: Any) -> tuple[Any, ...] | None:
            row = find(*arguments)
            touched.extend(value for value in row or () if isinstance(value, bytes))
            return row

        database._reader.find = recorded  # type: ignore[method-assign]
        family = KernelFamily("family", database)
        plan = family.plan(arch="sm_90", **configuration)
        answer = (plan.digest, plan.as_dict(), family.record, family.parameters, plan.link_key)
    return answer, touched


if __name__ == "__main__":
    script.run(__doc__, measure, plots, sizes=[32, 1000, 10_000], runs=15, damage=1000)
