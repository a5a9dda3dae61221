"""From the first call to a kernel ready to launch, in fresh processes: linked, from disk, from a pack; and again.

Measured from ``load`` to the driver having loaded the kernel. Before that the process has imported ``cuda.core`` and
made its context, and begun with ``from jitlto import load``. Databases hold the whole families; jitlto lies as pip
leaves it, compiled.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from jitlto.cuda import device
from tests.benchmarks.families import svg
from tests.benchmarks.families.cases import CASES, words
from tests.benchmarks.families.databases import NAMES, whole_family
from tests.benchmarks.families.part import Options, Outcome, say, survive, table
from tests.benchmarks.families.timing import summary
from tests.benchmarks.installed import install
from tests.support.process import ROOT

_SCRIPT = """
import json, sys, time
import cuda.core
device = cuda.core.Device(0)
device.set_current()
from cuda.bindings import driver
driver.cuMemAlloc(4096)
device.sync()
from jitlto import load
configuration = json.loads(sys.argv[3])
begin = time.perf_counter()
family = load(sys.argv[2], sys.argv[1])
launcher = family.launcher(**configuration).prepare()
first = time.perf_counter() - begin
begin = time.perf_counter()
for _ in range(1000):
    family.launcher(**configuration)
again = (time.perf_counter() - begin) / 1000
print(json.dumps({"first": 1000 * first, "again": 1000 * again, "layer": launcher.linked.layer}))
"""
_LAYERS = {"cold": "link", "disk": "disk", "pack": "pack"}
_WORDS = {
    "cold": "nothing there: linked",
    "disk": "in the user's cache",
    "pack": "in a pack",
    "memory": "the same again",
}


def run(options: Options) -> Outcome:
    """All families."""
    rounds = {"cold": 1, "disk": 1, "pack": 1} if options.small else {"cold": 7, "disk": 11, "pack": 11}
    arch = device.architecture().sm
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    for name in NAMES:
        with survive(name, failures):
            case = CASES[name][1]
            database = whole_family(name, options.work)
            packed = _with_pack(name, database, case, arch, options.work)
            say(f"{name}: database and pack")
            place = options.work / "first_call"
            _first(database, name, case, place / f"{name}_disk")  # and the system has read all files once
            times: dict[str, list[float]] = {"cold": [], "disk": [], "pack": [], "memory": []}
            for layer, count in rounds.items():
                for number in range(count):
                    shutil.rmtree(place / f"{name}_empty", ignore_errors=True)
                    cache = place / f"{name}_{'disk' if layer == 'disk' else 'empty'}"
                    found = _first(packed if layer == "pack" else database, name, case, cache)
                    assert found["layer"] == _LAYERS[layer], f"{layer} {number}: from {found['layer']}"
                    times[layer].append(found["first"])
                    times["memory"].append(found["again"])
            rows.append(
                {
                    "family": name,
                    "configuration": case,
                    "milliseconds": {layer: summary(values) for layer, values in times.items()},
                    "cold/disk": round(statistics.median(times["cold"]) / statistics.median(times["disk"]), 1),
                }
            )
            say(f"{name}: " + ", ".join(f"{k} {v['median']:.4g} ms" for k, v in rows[-1]["milliseconds"].items()))
    text = table(
        ("first call, ms", *(f"{layer}: {what}" for layer, what in _WORDS.items())),
        [(f"{r['family']}: {words(r['family'], r['configuration'])}",
          *(r["milliseconds"][layer]["median"] for layer in _WORDS)) for r in rows],
    )  # fmt: skip
    plot = svg.bars(
        "From the first call to a kernel ready to launch", list(_WORDS.values()),
        [svg.Group(r["family"], [svg.Value.of(r["milliseconds"][layer]) for layer in _WORDS]) for r in rows],
        "milliseconds, logarithmic; lines: quartiles", logarithmic=True,
    ) if rows else ""  # fmt: skip
    return Outcome({"what": __doc__, "first_calls": rows}, text, {"": plot} if rows else {}, failures)


def _with_pack(name: str, database: Path, case: dict[str, str], arch: str, work: Path) -> Path:
    """A copy of a database with a pack beside it that holds the case's kernel."""
    directory = work / "packed"
    directory.mkdir(exist_ok=True)
    copy = Path(shutil.copy(database, directory / f"{name}.fragdb"))
    settings = [f"{key}={value}" for key, value in case.items()]
    command = [sys.executable, "-m", "jitlto", "warm", name, *settings, "--arch", arch, "--db", str(copy),
               "-o", str(copy.with_suffix(".pack"))]  # fmt: skip
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True, timeout=120)
    return copy


def _first(database: Path, name: str, case: dict[str, str], cache: Path) -> dict[str, Any]:
    environment = os.environ | install(cache.parent) | {"JITLTO_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", _SCRIPT, str(database), name, json.dumps(case)]
    done = subprocess.run(
        command, cwd=cache.parent, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the process failed: {done.stderr[-1500:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
