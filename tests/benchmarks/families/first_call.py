"""From the first call to a kernel ready to launch, in fresh processes: linked, from disk, from a pack; and again.

Measured from ``load`` to the driver having loaded the kernel. Before that the process has imported ``cuda.core`` and
made its context, and begun with ``from jitlto import load``. Databases hold the whole families; jitlto lies as pip
leaves it, compiled.
"""

import json
import shutil
from pathlib import Path

from jitlto.cuda import device
from tests.benchmarks import script
from tests.benchmarks.families.cases import CASES
from tests.benchmarks.families.databases import NAMES, whole_family
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import Times, summaries

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


def measure(options: Options) -> Result:
    """All families."""
    rounds = {"cold": 1, "disk": 1, "pack": 1} if options.small else {"cold": 7, "disk": 11, "pack": 11}
    rows = []
    for name in NAMES:
        case, database = CASES[name][1], whole_family(name, options.work)
        packed = _with_pack(name, database, case, options.work)
        place = options.work / "first_call"
        _first(database, name, case, place / f"{name}_disk")  # and the system has read all files once
        times: Times = {layer: [] for layer in _WORDS}
        for layer, count in rounds.items():
            for _ in range(count):
                shutil.rmtree(place / f"{name}_empty", ignore_errors=True)
                cache = place / f"{name}_{'disk' if layer == 'disk' else 'empty'}"
                found = _first(packed if layer == "pack" else database, name, case, cache)
                assert found["layer"] == _LAYERS[layer], f"{layer}: from {found['layer']}"
                times[layer].append(found["first"])
                times["memory"].append(found["again"])
        rows.append({"family": name, "configuration": case, "milliseconds": summaries(times)})
    return {"what": __doc__, "first_calls": rows}


def _with_pack(name: str, database: Path, case: dict[str, str], work: Path) -> Path:
    """A copy of a database with a pack beside it that holds the case's kernel."""
    directory = work / "packed"
    directory.mkdir(exist_ok=True)
    copy = Path(shutil.copy(database, directory / f"{name}.fragdb"))
    settings = [f"{key}={value}" for key, value in case.items()]
    arch = device.architecture().sm
    script.jitlto("warm", name, *settings, "--arch", arch, "--db", copy, "-o", copy.with_suffix(".pack"))
    return copy


def _first(database: Path, name: str, case: dict[str, str], cache: Path) -> Result:
    own = script.installed(cache.parent) | {"JITLTO_CACHE_DIR": str(cache)}
    answer: Result = script.answer(_SCRIPT, database, name, json.dumps(case), cwd=cache.parent, **own)
    return answer
