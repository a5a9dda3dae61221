"""A fleet: processes on simulated hosts, each host with its own cache directory, that request the same kernels at once.

``python -m tests.support.fleet JSON`` is one fleet; its processes are forked from one that has only imported jitlto.
"""

import hashlib
import json
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jitlto import database  # noqa: F401 - before the fork
from jitlto.base import events
from jitlto.base.errors import JitltoError
from jitlto.plan import planner  # noqa: F401 - before the fork
from jitlto.runtime import session
from jitlto.source.load import load
from tests.support.families import MINI
from tests.support.process import python

#: Ten kernels that differ in their device function.
TEN = MINI | {
    "family.toml": MINI["family.toml"].replace('"mini"', '"ten"'),
    "op.json": json.dumps(
        {
            "data_type": ["float", "double"],
            "_op": [
                {"op_name": name, "expr": expression}
                for name, expression in [
                    ("twice", "a + a"),
                    ("square", "a * a"),
                    ("half", "a / 2"),
                    ("inverse", "1 / a"),
                    ("shifted", "a + 1"),
                ]
            ],
        }
    ),
}


@dataclass(frozen=True)
class Report:
    """What the processes of a fleet say.

    Parameters
    ----------
    results : list of dict
        Of each process: ``counters``, ``cubins`` (SHA-256 by digest), ``seconds`` of each request, ``statistics`` of
        the stores.
    log : str
    seconds : float
        From the first request to the end of the last process.
    """

    results: list[dict[str, Any]]
    log: str
    seconds: float

    @property
    def counters(self) -> Counter[str]:
        """The events of all processes."""
        total: Counter[str] = Counter()
        for result in self.results:
            total.update(result["counters"])
        return total

    @property
    def cubins(self) -> set[tuple[tuple[str, str], ...]]:
        """What the processes have got; one element if it is the same."""
        return {tuple(sorted(result["cubins"].items())) for result in self.results}


def sail(
    path: Path, family: str, folder: Path, *, hosts: int, processes: int, seconds: float = 300, **variables: str
) -> Report:
    """Have processes request all kernels of a family; hosts have their caches below ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {"path": str(path), "family": family, "folder": str(folder), "hosts": hosts, "processes": processes}
    done = python("-m", "tests.support.fleet", json.dumps(given), seconds=seconds, **variables)
    assert done.returncode == 0, done.stderr
    results = [json.loads((folder / f"result{number}").read_text()) for number in range(processes)]
    return Report(results, done.stderr, float(done.stdout))


def _request(given: dict[str, Any], number: int, ready: int, gate: int) -> None:
    """Be one process of a fleet."""
    folder = Path(given["folder"])
    os.environ["JITLTO_CACHE_DIR"] = str(folder / f"host{number % given['hosts']}")
    session.default.reset()
    family = load(given["family"], given["path"])
    plans = [family.plan(arch="sm_90", **configuration) for configuration in family.configurations()]
    digests = [plan.digest for plan in plans]
    os.write(ready, b".")
    os.read(gate, 1)  # ends when the first process closes the gate
    cubins, seconds = {}, []
    for digest, plan in zip(digests, plans, strict=True):
        begin = time.perf_counter()
        try:
            cubins[digest] = hashlib.sha256(plan.link().cubin).hexdigest()
        except JitltoError as error:
            cubins[digest] = error.code
        seconds.append(time.perf_counter() - begin)
    shared = session.default.kernel_cache.shared
    statistics = {}
    if shared is not None:
        shared.flush(10)
        statistics = {name: shared.counts[name] for name in _STATISTICS}
    result = {"counters": dict(events.counters()), "cubins": cubins, "seconds": seconds, "statistics": statistics}
    (folder / f"result{number}").write_text(json.dumps(result))


_STATISTICS = ("hits", "rejected", "failures", "bytes_read", "bytes_written")


def _main(given: dict[str, Any]) -> None:
    (ready_end, ready), (gate, gate_end) = os.pipe(), os.pipe()
    children = []
    for number in range(given["processes"]):
        child = os.fork()
        if not child:
            os.close(gate_end)
            _request(given, number, ready, gate)
            return  # and end as processes do, with what they do at their end
        children.append(child)
    for _ in children:
        os.read(ready_end, 1)
    begin = time.monotonic()
    os.close(gate_end)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    print(time.monotonic() - begin)
    if any(statuses):
        sys.exit(f"processes ended with {statuses}")


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
