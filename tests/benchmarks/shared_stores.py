"""What shared stores save a fleet, and what they cost a process.

64 processes on 8 simulated hosts, each host with its own cache directory, and one S3 store behind a round trip of 5 ms,
request the same 10 kernels at once: with an empty store, and again, on 8 new hosts. Then fresh processes on new hosts,
one at a time: how much longer the first kernel takes than a bare request for the same object.

python -m tests.benchmarks.shared_stores --output docs/benchmarks/shared_stores_run.json
"""

from collections.abc import Mapping
from pathlib import Path

from tests.benchmarks import script
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import Times, summaries
from tests.support.families import built
from tests.support.fleet import TEN, Report, sail
from tests.support.store_server import FaultyStore, faulty_store
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


def measure(options: Options) -> Result:
    result: Result = {}
    place: Path = options.place
    with faulty_store() as faulty:
        faulty.set(latency=1e-3 * options.latency)
        path = built(place / "ten", TEN, "ten").database.path
        variables = signed(place, faulty)
        for name in ("empty store", "again"):
            faulty.counts(reset=True)
            size = {"hosts": options.hosts, "processes": options.processes}
            # The cores of this machine stand for all hosts, so replies may be late.
            report = sail(path, "ten", place / name, **size, seconds=1200, **variables, JITLTO_STORE_PATIENCE="30")
            result[name] = {**size, **_fleet(report), "requests to the store": _requests(faulty)}
        result["first kernel, ms"] = _first(place, path, variables, options.runs)
    return result


def signed(place: Path, faulty: FaultyStore) -> dict[str, str]:
    """The variables of a store, signed."""
    write_key(place / "key")
    keys = {"JITLTO_STORE_KEY": str(place / "key"), "JITLTO_STORE_SIGNERS": str(place / "key.pub")}
    return {**faulty.environment, **keys}


def _fleet(report: Report) -> dict[str, object]:
    counters = report.counters
    kinds = ("linked", "found_in_store", "found_on_disk", "waited")
    return {
        **{kind: counters[kind] for kind in kinds},
        "kernels": len(report.results[0]["cubins"]),
        "all processes have the same code": len(report.cubins) == 1,
        "seconds": round(report.seconds, 1),
    }


def _requests(faulty: FaultyStore) -> Mapping[str, int]:
    return {name: count for name, count in sorted(faulty.counts().items()) if name.isupper() or name.startswith("st")}


def _first(place: Path, path: Path, variables: dict[str, str], runs: int) -> Result:
    """Milliseconds of processes with a store and an empty cache, and bare requests for the same objects, in turn."""
    times: Times = {}
    found = 0
    for run in range(runs + 1):
        own = variables | {"JITLTO_CACHE_DIR": str(place / f"fresh{run}")}
        (_, _, first, second), layers, digests = script.answer(_FRESH, path, **own)
        found += layers.count("store") if run else 0
        if layers != ["store", "store"] or not run:  # this machine was busy, and the reply late
            continue
        bare = script.answer(_BARE, *digests, **variables)
        for name, seconds in {
            "first kernel": first,
            "bare request, with its connection": bare[0],
            "first kernel beyond the bare request": first - bare[0],
            "second kernel": second,
            "second bare request": bare[1],
            "second kernel beyond the bare request": second - bare[1],
        }.items():
            times.setdefault(name, []).append(1000 * seconds)
    return {"kernels requested": 2 * runs, "found in the store": found, **summaries(times)}


if __name__ == "__main__":
    script.run(__doc__, measure, processes=64, hosts=8, runs=20, latency=5.0)
