"""What a broken shared store costs a process: milliseconds beyond the same process without a store, by fault.

Two processes: one asks a store for ten entries and writes them, the other links four kernels with an empty cache.
Runs with the fault and without a store take turns.

python -m tests.benchmarks.shared_stores_faults --runs 15
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from jitlto.build.pipeline import build
from jitlto.storage import declaration
from tests.benchmarks.machine import command_line, describe
from tests.support.families import MINI, write_family
from tests.support.shared_stores import KeyPair, signed, trust
from tests.support.store_faults import FAULTS, LINKING, Cost, proxied, run

CASES = {"healthy": proxied(), "healthy, 5 ms away": proxied(latency=0.005), **FAULTS}


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--runs", type=int, default=15, help="of each kind")
    parser.add_argument("--only", choices=list(CASES))
    options = parser.parse_args()
    result: dict[str, Any] = {**describe(command_line()), "runs": options.runs, "faults": {}}
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        key = KeyPair.create(place / "key")
        settings = signed(trust(place / "signers", key), key)
        family = declaration.load_family(write_family(place / "mini", MINI))
        database = build([family], place / "mini.fragdb", jobs=1).path
        for name in [options.only] if options.only else CASES:
            case = place / name.replace("/", " a ")
            case.mkdir()
            figures = measure(name, settings, case, database, options.runs)
            print(f"{name:26}", json.dumps(figures), flush=True)
            result["faults"][name] = figures
    result["load"] = os.getloadavg()
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def measure(name: str, settings: dict[str, str], place: Path, database: Path, runs: int) -> dict[str, Any]:
    """The figures of one fault."""
    asking: list[tuple[Cost, Cost]] = []
    linking: list[tuple[Cost, Cost]] = []
    for number in range(runs):
        with CASES[name](place) as store:
            asking.append((run({}), run(store | settings)))
        caches = [{"JITLTO_CACHE_DIR": str(place / f"{kind}{number}")} for kind in ("alone", "beside")]
        with CASES[name](place) as store:
            alone = run(caches[0], LINKING, database)
            linking.append((alone, run(caches[1] | store | settings, LINKING, database)))
    return {
        "calls of the store, ms": _spread([beside.waited for _, beside in asking]),
        "process that asks, ms more": _more([(alone.whole, beside.whole) for alone, beside in asking]),
        "four kernels linked, ms more": _more([(alone.waited, beside.waited) for alone, beside in linking]),
        "process that links, ms more": _more([(alone.whole, beside.whole) for alone, beside in linking]),
        "process that links, processor ms more": _more([(a.processor, b.processor) for a, b in linking]),
        "messages": _spread([len(beside.messages) / 1000 for _, beside in (*asking, *linking)]),
    }


def _spread(seconds: list[float]) -> dict[str, float]:
    return {"least": _ms(min(seconds)), "median": _ms(median(seconds)), "most": _ms(max(seconds))}


def _more(pairs: list[tuple[float, float]]) -> dict[str, float]:
    """The fastest run with the store less the fastest without, and the median of the differences."""
    alone, beside = zip(*pairs, strict=True)
    return {"fastest": _ms(min(beside) - min(alone)), "median": _ms(median(b - a for a, b in pairs))}


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


if __name__ == "__main__":
    main()
