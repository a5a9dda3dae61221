"""How long a build takes on a fresh machine, whose cache directory is empty, if a shared store has what it needs.

python -m tests.benchmarks.shared_stores_build --output docs/benchmarks/shared_stores_build.json

The store is a bucket in memory behind a faulty that adds a round trip of 5 ms and lets 100 MB/s pass; entries are
signed. Each build is the whole command in a fresh process. Builds of what has not changed, with and without a store,
take turns.
"""

import json
import shutil
import statistics
from pathlib import Path

from tests.benchmarks import script
from tests.benchmarks.script import Options, Result
from tests.benchmarks.shared_stores import signed
from tests.benchmarks.timing import seconds
from tests.support.store_server import faulty_store


def measure(options: Options) -> Result:
    place: Path = options.place
    database = place / "built.fragdb"
    contents: set[bytes] = set()
    with faulty_store() as faulty:
        store = signed(place, faulty)
        faulty.set(latency=options.latency, bandwidth=options.bandwidth)

        def run(*, stores: bool, fresh: bool = True) -> Result:
            """Build, with or without the store, on a fresh machine or on the last one again."""
            cache = place / ("with" if stores else "without")
            if fresh:
                shutil.rmtree(cache, ignore_errors=True)
            own = {"JITLTO_CACHE_DIR": str(cache), **(store if stores else {})}

            printed: list[str] = []
            command = ("build", options.family, "-o", database, "--json")
            taken = seconds(lambda: printed.append(script.jitlto(*command, **own)))
            built = json.loads(printed[0])
            contents.add(database.read_bytes())
            return {"seconds": round(taken, 3), "compiled": built["compiled"], **built["cache"]}

        cold = run(stores=False)
        filling = run(stores=True)
        again = [run(stores=stores, fresh=False) for _ in range(options.runs) for stores in (True, False)]
        faulty.counts(reset=True)
        warm = [run(stores=True) for _ in range(options.runs)]
        counts = faulty.counts()
    if len(contents) != 1:
        raise SystemExit("the databases differ")
    return {
        "family": options.family,
        "round_trip_ms": 1000 * options.latency,
        "bandwidth_mb_s": options.bandwidth / 1e6,
        "without_store_empty_directory": cold,
        "filling_the_store": filling,
        "from_the_store_empty_directory": warm,
        "median_seconds_from_the_store": round(statistics.median(built["seconds"] for built in warm), 3),
        "requests_of_a_build_from_the_store": round(counts["requests"] / options.runs),
        "nothing_changed_with_store": [built["seconds"] for built in again[::2]],
        "nothing_changed_without_store": [built["seconds"] for built in again[1::2]],
    }


if __name__ == "__main__":
    script.run(__doc__, measure, family="ivf_flat", runs=5, latency=0.005, bandwidth=100e6)
