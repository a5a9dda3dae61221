"""What it costs to find a family in an installed package, against naming its file; and to list a hundred of them.

Fresh processes in turn, each with a kernel that an earlier one has linked: ``jitlto.family(name)`` or
``jitlto.load(name, path)``, then ``launcher``, up to loading the kernel, for which a device would be needed. First with
the packages of this environment and one more, then with a hundred more that bring families too.

python -m tests.benchmarks.finding --runs 30
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

from msgspec.structs import replace

from jitlto.build.pipeline import build
from jitlto.database import FragmentDatabase, writer
from jitlto.families import declaration
from tests.benchmarks.machine import command_line, describe
from tests.support.distributions import install
from tests.support.families import MINI, write_family

_FIND = """
import json, sys, time
from types import SimpleNamespace
import jitlto
from jitlto.cuda import device
from jitlto.runtime import family as kernels
device.current = lambda: SimpleNamespace(compute_capability=(9, 0))
device.kind = lambda: (9, 0)
kernels.KernelFamily._launcher = lambda self, chosen, linked, plan: SimpleNamespace(
    layer=linked.layer, load_seconds=0.0
)
begin = time.perf_counter()
mini = jitlto.load("mini", sys.argv[1]) if len(sys.argv) > 1 else jitlto.family("mini")
found = time.perf_counter()
linked = mini.launcher(data_type="float", op_name="twice")
print(json.dumps([found - begin, time.perf_counter() - found, linked.layer]))
"""
_LIST = """
import json, time
from jitlto.runtime import session
from jitlto.runtime.discovery import entry_points, installed
times = []
for work in (entry_points.families, lambda: installed.installed_families(session.default.registry)):
    for clock in (time.perf_counter, time.process_time):
        begin = clock()
        work()
        times.append(clock() - begin)
print(json.dumps(times))
"""


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--runs", type=int, default=30)
    options = parser.parse_args()
    result: dict[str, object] = {"machine": describe(command_line())}
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        path = build([declaration.load_family(write_family(place / "mini", MINI))], place / "mini.fragdb", jobs=1).path
        site, value = place / "site", "package.fragments"
        install(site, "package", families={"mini": value}, databases={value: path})
        result["one package"] = _found(place, site, site / "package" / "fragments.fragdb", options.runs)
        _hundred(site, path)
        result["a hundred and one"] = _found(place, site, site / "package" / "fragments.fragdb", options.runs)
        lists = [_run(place, site, _LIST) for _ in range(options.runs + 1)][1:]
        names = ("entry points", "entry points, CPU", "all that ls --installed shows", "all, CPU")
        result["listing, ms"] = {
            name: _summary(times) for name, times in zip(names, zip(*lists, strict=True), strict=True)
        }
    print(json.dumps(result, indent=1))
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def _found(place: Path, site: Path, path: Path, runs: int) -> dict[str, object]:
    ways = {"family": (), "load": (str(path),)}
    times: dict[str, list[list[float]]] = {way: [] for way in ways}
    for run in range(runs + 2):
        for way, arguments in ways.items():
            *seconds, layer = _run(place, site, _FIND, *arguments)
            if run >= 2:
                assert layer == "disk", layer
                times[way].append(seconds)
    return {
        f"{way}, ms": {
            step: _summary(each) for step, each in zip(("find", "launcher"), zip(*found, strict=True), strict=True)
        }
        for way, found in times.items()
    }


def _summary(seconds: tuple[float, ...]) -> dict[str, float]:
    return {"least": round(1e3 * min(seconds), 2), "median": round(1e3 * statistics.median(seconds), 2)}


def _run(place: Path, site: Path, code: str, *arguments: str) -> list[float]:
    own = {"PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))}
    environment = os.environ | own | {"JITLTO_CACHE_DIR": str(place / "cache")}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment, check=True, capture_output=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def _hundred(site: Path, path: Path) -> None:
    with FragmentDatabase(path) as opened:
        record, fragments = opened.families["mini"], opened.fragments()
        blobs = {image.sha256: opened.read(image) for f in fragments for image in f.images}
    for number in range(100):
        name, made = f"family_{number}", path.with_name("made.fragdb")
        renamed = [replace(f, key=replace(f.key, family=name)) for f in fragments]
        writer.write(made, [replace(record, name=name)], renamed, blobs)
        install(site, f"package-{number}", families={name: f"p{number}.f"}, databases={f"p{number}.f": made})


if __name__ == "__main__":
    main()
