"""How long a build takes on a fresh machine, whose cache directory is empty, if a shared store has what it needs.

python -m tests.benchmarks.shared_stores_build --output docs/benchmarks/shared_stores_build.json

The store is a bucket in memory behind a proxy that adds a round trip of 5 ms and lets 100 MB/s pass; entries are
signed. Each build is the whole command in a fresh process. Builds of what has not changed, with and without a store,
take turns.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.machine import command_line, describe
from tests.support.process import environment
from tests.support.store_server import fault_proxy


@dataclass
class Builds:
    """Builds of a family in fresh processes."""

    family: str
    directory: Path
    store: dict[str, str]  # variables

    def run(self, *, stores: bool, fresh: bool = True, check: bool = False) -> dict[str, Any]:
        """Build, with or without the store, on a fresh machine or on the last one again."""
        cache = self.directory / ("with" if stores else "without")
        if fresh:
            shutil.rmtree(cache, ignore_errors=True)
        database = self.directory / "built.fragdb"
        variables = environment(JITLTO_CACHE_DIR=str(cache), **(self.store if stores else {}))
        seconds, done = self._time(["build", self.family, "-o", str(database), "--json"], variables)
        built = json.loads(done)
        result = {"seconds": round(seconds, 3), "compiled": built["compiled"], **built["cache"]}
        result["bytes"] = database.read_bytes()
        if check:
            command = ["check", str(database), "--link", "sm_90", "--cover", "1", "--no-compare", "--json"]
            seconds, done = self._time(command, variables)
            links = [links for links in json.loads(done)["link"]["families"] if links["linked"]]
            known = sum(each["known"] for each in links)
            result["check"] = {
                "seconds": round(seconds, 3),
                "links": sum(each["linked"] for each in links),
                "known": known,
            }
        return result

    def _time(self, arguments: list[str], variables: dict[str, str]) -> tuple[float, str]:
        begin = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "jitlto", *arguments], env=variables, check=True, stdout=subprocess.PIPE, text=True
        )
        return time.perf_counter() - begin, done.stdout


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--family", default="ivf_flat")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--latency", type=float, default=0.005, help="seconds of a round trip")
    parser.add_argument("--bandwidth", type=float, default=100e6, help="bytes a second")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as name, fault_proxy(None) as proxy:
        directory = Path(name)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / "key"], check=True)  # noqa: S607
        keys = {"JITLTO_STORE_KEY": str(directory / "key"), "JITLTO_STORE_SIGNERS": str(directory / "key.pub")}
        builds = Builds(options.family, directory, proxy.environment | keys)
        proxy.set(latency=options.latency, bandwidth=options.bandwidth)
        cold = builds.run(stores=False, check=True)
        filling = builds.run(stores=True, check=True)
        again = [builds.run(stores=stores, fresh=False) for _ in range(options.runs) for stores in (True, False)]
        proxy.counts(reset=True)
        warm = [builds.run(stores=True) for _ in range(options.runs)]
        counts = proxy.counts()
        checked = builds.run(stores=True, check=True)
    everything = [cold, filling, *again, *warm, checked]
    if len({built.pop("bytes") for built in everything}) != 1:
        raise SystemExit("the databases differ")
    result = {
        "machine": describe(command_line()),
        "family": options.family,
        "round_trip_ms": 1000 * options.latency,
        "bandwidth_mb_s": options.bandwidth / 1e6,
        "without_store_empty_directory": cold,
        "filling_the_store": filling,
        "from_the_store_empty_directory": warm,
        "median_seconds_from_the_store": round(statistics.median(built["seconds"] for built in warm), 3),
        "requests_of_a_build_from_the_store": round(counts["requests"] / options.runs),
        "check_from_the_store": checked["check"],
        "nothing_changed_with_store": [built["seconds"] for built in again[::2]],
        "nothing_changed_without_store": [built["seconds"] for built in again[1::2]],
    }
    print(json.dumps(result, indent=1))
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
