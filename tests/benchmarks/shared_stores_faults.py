"""What a broken shared store costs a process, by fault.

A process asks a store for ten entries, writes them and ends. What counts is the time that its main thread spends in
calls of the store and, at the end, waiting for what is still to be written. Loading obstore and the keys in the
background is counted as processor time; runs with the fault and without a store take turns.

python -m tests.benchmarks.shared_stores_faults --runs 15
"""

from tests.benchmarks import script
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import beyond, summary
from tests.support.shared_stores import KeyPair, signed, trust
from tests.support.store_faults import FAULTS, Cost, proxied, run

CASES = {"healthy": proxied(), "healthy, 5 ms away": proxied(latency=0.005), **FAULTS}


def measure(options: Options) -> Result:
    key = KeyPair.create(options.place / "key")
    settings = signed(trust(options.place / "signers", key), key)
    result: Result = {}
    for name in [options.only] if options.only else CASES:
        alone, beside = list[Cost](), list[Cost]()
        for _ in range(options.runs):
            with CASES[name](options.place) as store:
                alone.append(run({}))
                beside.append(run(store | settings))
        waited = [1000 * cost.waited for cost in beside]
        processor = {n: [1000 * cost.processor for cost in costs] for n, costs in (("a", alone), ("b", beside))}
        result[name] = {
            "waited, ms": {"least": round(min(waited), 1), **summary(waited), "most": round(max(waited), 1)},
            "processor time more, median, ms": beyond(processor, "b", "a"),
            "messages": sorted({len(cost.messages) for cost in beside}),
        }
    return {"runs": options.runs, "faults": result}


if __name__ == "__main__":
    script.run(__doc__, measure, runs=15, only=tuple(CASES))
