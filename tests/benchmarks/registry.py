"""What it costs a new process to find a family among many databases, and how many of them it opens.

Databases of installed packages, then the same on ``JITLTO_DATABASE_PATH``: at first, with an empty user's cache; again,
for a family that another process has found; and for one that none has. From ``jitlto.family`` to its parameters.

python -m tests.benchmarks.registry --output registry.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks import synthetic
from tests.benchmarks.machine import command_line, describe
from tests.support.distributions import install

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


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--databases", type=int, default=200)
    parser.add_argument("--fragments", type=int, default=500)
    parser.add_argument("--runs", type=int, default=11)
    options = parser.parse_args()
    result: dict[str, Any] = {
        **describe(command_line()), "databases": options.databases, "fragments each": options.fragments,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        mini, site, path = synthetic.compile_mini(place), place / "site", place / "path"
        path.mkdir()
        for number in range(options.databases):
            made = synthetic.write(path / f"f{number}.fragdb", mini, options.fragments, f"f{number}")
            value = f"p{number}.fragments"
            install(site, f"package-{number}", families={f"f{number}": value}, databases={value: made})
        result["installed"] = _measured(place, options, PYTHONPATH=str(site))
        result["on JITLTO_DATABASE_PATH"] = _measured(place, options, JITLTO_DATABASE_PATH=str(path))
    text = json.dumps(result, indent=1) + "\n"
    print(text)
    if options.output:
        options.output.write_text(text)


def _measured(place: Path, options: argparse.Namespace, **variables: str) -> dict[str, Any]:
    cache = place / f"cache of {'-'.join(variables)}"
    _find(place / "other", "f0", **variables)  # and the system has read all files once
    first = [_find(cache, "f1", **variables)]
    again = [_find(cache, "f1", **variables) for _ in range(options.runs)]
    others = [_find(cache, f"f{number}", **variables) for number in range(2, options.runs + 2)]
    return {"first": _summary(first), "again": _summary(again), "another family": _summary(others)}


def _summary(found: list[tuple[float, int]]) -> dict[str, Any]:
    times, opened = zip(*found, strict=True)
    return {"ms, median": round(statistics.median(times), 2), "ms, least": round(min(times), 2), "opened": max(opened)}


def _find(cache: Path, family: str, **variables: str) -> tuple[float, int]:
    path = os.pathsep.join(filter(None, [variables.pop("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | variables | {"PYTHONPATH": path, "JITLTO_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", _FIND, family], env=environment, check=True, capture_output=True)
    milliseconds, opened = json.loads(done.stdout)
    return milliseconds, opened


if __name__ == "__main__":
    main()
