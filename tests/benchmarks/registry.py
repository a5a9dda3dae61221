"""What it costs a new process to find a family among many databases, and how many of them it opens.

Databases of installed packages, then the same on ``JITLTO_DATABASE_PATH``: at first, with an empty user's cache; again,
for a family that another process has found; and for one that none has. From ``jitlto.family`` to its parameters.

python -m tests.benchmarks.registry --output registry.json
"""

import os
from pathlib import Path
from typing import Any

from tests.benchmarks import script
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import summary
from tests.support.distributions import install
from tests.support.synthetic import write_family

_FIND = """
import json, sys, time
import jitlto
from jitlto import family
opened = []
sys.addaudithook(lambda name, given: opened.append(given) if name == "sqlite3.connect" else None)
begin = time.perf_counter()
family(sys.argv[1]).parameters
print(json.dumps([1e3 * (time.perf_counter() - begin), len(opened)]))
"""


def measure(options: Options) -> Result:
    site, path = options.place / "site", options.place / "path"
    path.mkdir()
    for number in range(options.databases):
        made = write_family(path / f"f{number}.fragdb", options.fragments, f"f{number}")
        value = f"p{number}.fragments"
        install(site, f"package-{number}", families={f"f{number}": value}, databases={value: made})
    ways = {
        "installed": {"PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))},
        "on JITLTO_DATABASE_PATH": {"JITLTO_DATABASE_PATH": str(path)},
    }
    measured = {way: _measured(options.place / way, options.runs, variables) for way, variables in ways.items()}
    return {"databases": options.databases, "fragments each": options.fragments, **measured}


def _measured(place: Path, runs: int, variables: dict[str, str]) -> dict[str, Any]:
    def find(family: str, cache: str = "cache") -> tuple[float, int]:
        milliseconds, opened = script.answer(_FIND, family, **variables, JITLTO_CACHE_DIR=str(place / cache))
        return milliseconds, opened

    find("f0", "other")  # and the system has read all files once
    first = [find("f1")]
    again = [find("f1") for _ in range(runs)]
    others = [find(f"f{number}") for number in range(2, runs + 2)]
    return {
        name: {"ms": summary([each for each, _ in found]), "opened": max(opened for _, opened in found)}
        for name, found in (("first", first), ("again", again), ("another family", others))
    }


if __name__ == "__main__":
    script.run(__doc__, measure, databases=200, fragments=500, runs=11)
