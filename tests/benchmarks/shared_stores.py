"""What shared stores save a fleet, and what they cost a process.

64 processes on 8 simulated hosts, each host with its own cache directory, and one S3 store behind a round trip of 5 ms,
request the same 10 kernels at once: with an empty store, and again, on 8 new hosts. Then fresh processes on new hosts,
one at a time: how much longer the first kernel takes than a bare request for the same object; and what a configured
store costs a process that finds its kernel on its own disk.

python -m tests.benchmarks.shared_stores --output docs/benchmarks/shared_stores_run.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.machine import command_line, describe
from tests.support.families import built
from tests.support.fleet import TEN, Report, sail
from tests.support.process import output_of
from tests.support.store_server import Proxy, fault_proxy, s3_server
from tests.support.stores import write_key

#: A fresh process: seconds of importing and loading, of planning, of the first kernel and of a second one.
_FRESH = """
import json, sys, time
marks = [time.perf_counter()]
import jitlto
family = jitlto.load("ten", sys.argv[1])
marks.append(time.perf_counter())
plans = [family.plan(arch="sm_90", **configuration) for configuration in list(family.configurations())[:2]]
digests = [plan.digest for plan in plans]
marks.append(time.perf_counter())
layers = []
for plan in plans:
    layers.append(plan.link().layer)
    marks.append(time.perf_counter())
print(json.dumps([[end - begin for begin, end in zip(marks, marks[1:])], layers, digests]))
"""
#: The same two objects with obstore alone: seconds of each request, with the connection and without.
_BARE = """
import json, os, sys, time
from obstore.store import from_url
store = from_url(os.environ["JITLTO_STORE"])
seconds = []
for digest in sys.argv[1:]:
    begin = time.perf_counter()
    bytes(store.get(f"v1/kernels/{digest[:2]}/{digest[2:]}").bytes())
    seconds.append(time.perf_counter() - begin)
print(json.dumps(seconds))
"""


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--runs", type=int, default=20, help="fresh processes, one at a time")
    parser.add_argument("--latency", type=float, default=5.0, help="of a round trip, in ms")
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": describe(command_line())}
    with tempfile.TemporaryDirectory() as directory, s3_server() as server, fault_proxy(server) as proxy:
        place = Path(directory)
        proxy.set(latency=1e-3 * options.latency)
        path = built(place / "ten", TEN, "ten").database.path
        variables = _variables(place, proxy)
        for name in ("empty store", "again"):
            proxy.counts(reset=True)
            size = {"hosts": options.hosts, "processes": options.processes}
            # The cores of this machine stand for all hosts, so replies may be late.
            report = sail(path, "ten", place / name, **size, seconds=1200, **variables, JITLTO_STORE_PATIENCE="30")
            result[name] = {**size, **_fleet(report), "requests to the store": _requests(proxy)}
        result["first kernel, ms"] = _first(place, path, variables, options.runs)
        result["found on disk, ms"] = _on_disk(place, path, variables, options.runs)
    print(json.dumps(result, indent=1))
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def _variables(place: Path, proxy: Proxy) -> dict[str, str]:
    """The store, signed."""
    write_key(place / "key")
    keys = {"JITLTO_STORE_KEY": str(place / "key"), "JITLTO_STORE_SIGNERS": str(place / "key.pub")}
    return {**proxy.environment, **keys}


def _fleet(report: Report) -> dict[str, object]:
    counters = report.counters
    kinds = ("linked", "found_in_store", "found_on_disk", "waited")
    return {
        **{kind: counters[kind] for kind in kinds},
        "kernels": len(report.results[0]["cubins"]),
        "all processes have the same code": len(report.cubins) == 1,
        "seconds": round(report.seconds, 1),
    }


def _requests(proxy: Proxy) -> Mapping[str, int]:
    return {name: count for name, count in sorted(proxy.counts().items()) if name.isupper() or name.startswith("st")}


def _first(place: Path, path: Path, variables: dict[str, str], runs: int) -> dict[str, object]:
    """Processes with a store and an empty cache, and bare requests for the same objects, in turn."""
    marks: dict[str, list[float]] = {}
    found = 0

    def add(name: str, seconds: float) -> None:
        marks.setdefault(name, []).append(seconds)

    for run in range(runs + 1):
        printed = output_of(_FRESH, path, **variables, JITLTO_CACHE_DIR=str(place / f"fresh{run}"))
        (load, plan, first, second), layers, digests = json.loads(printed)
        found += layers.count("store") if run else 0
        if layers != ["store", "store"]:  # this machine was busy, and the reply late
            continue
        bare = json.loads(output_of(_BARE, *digests, **variables))
        alone = {name: text for name, text in variables.items() if name != "JITLTO_STORE"}
        printed = output_of(_FRESH, path, **alone, JITLTO_CACHE_DIR=str(place / f"alone{run}"))
        (own_load, own_plan, *_), _, _ = json.loads(printed)
        if run == 0:
            continue
        add("first kernel", first)
        add("bare request, with its connection", bare[0])
        add("first kernel beyond the bare request", first - bare[0])
        add("second kernel", second)
        add("second bare request", bare[1])
        add("second kernel beyond the bare request", second - bare[1])
        add("load and plan", load + plan)
        add("load and plan without a store", own_load + own_plan)
    times = {name: _summary(seconds) for name, seconds in marks.items()}
    return {"kernels requested": 2 * runs, "found in the store": found, **times}


def _on_disk(place: Path, path: Path, variables: dict[str, str], runs: int) -> dict[str, object]:
    """Processes that find the kernel on their own disk, with a store and without, in turn."""
    ways = {"without a store": {"JITLTO_STORE": ""}, "with a store": variables}
    marks: dict[str, list[float]] = {way: [] for way in ways}
    for run in range(runs + 1):
        for way, given in ways.items():
            printed = output_of(_FRESH, path, **(variables | given), JITLTO_CACHE_DIR=str(place / "fresh0"))
            seconds, layers, _ = json.loads(printed)
            assert layers == ["disk", "disk"], layers
            if run:
                marks[way].append(sum(seconds))
    return {f"{way}, from the import to the second kernel": _summary(seconds) for way, seconds in marks.items()}


def _summary(seconds: Iterable[float]) -> dict[str, float]:
    values = sorted(seconds)
    return {
        "least": round(1e3 * values[0], 2),
        "median": round(1e3 * statistics.median(values), 2),
        "most": round(1e3 * values[-1], 2),
    }


if __name__ == "__main__":
    main()
