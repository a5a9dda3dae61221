"""What a broken shared store costs a process, by fault.

A process asks a store for ten entries, writes them and ends. What counts is the time that its main thread spends in
calls of the store and, at the end, waiting for what is still to be written. Loading obstore and the keys in the
background is counted as processor time; runs with the fault and without a store take turns.

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

from tests.benchmarks.machine import command_line, describe
from tests.support.shared_stores import KeyPair, signed, trust
from tests.support.store_faults import FAULTS, Cost, proxied, run

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
        for name in [options.only] if options.only else CASES:
            result["faults"][name] = measure(name, settings, place, options.runs)
            print(f"{name:26}", json.dumps(result["faults"][name]), flush=True)
    result["load"] = os.getloadavg()
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def measure(name: str, settings: dict[str, str], place: Path, runs: int) -> dict[str, Any]:
    """The figures of one fault."""
    pairs: list[tuple[Cost, Cost]] = []
    for _ in range(runs):
        with CASES[name](place) as store:
            pairs.append((run({}), run(store | settings)))
    waited = [beside.waited for _, beside in pairs]
    more = [beside.processor - alone.processor for alone, beside in pairs]
    return {
        "waited, ms": {"least": _ms(min(waited)), "median": _ms(median(waited)), "most": _ms(max(waited))},
        "processor time more, median, ms": _ms(median(more)),
        "messages": sorted({len(beside.messages) for _, beside in pairs}),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


if __name__ == "__main__":
    main()
