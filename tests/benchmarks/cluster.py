"""Builds on a Dask cluster of this machine, and what a task costs the scheduler, the client and the network.

python -m tests.benchmarks.cluster --output docs/benchmarks/cluster.json

Scheduler and workers are processes with one thread each. All their connections lead through a process that counts the
bytes and holds each back for the latency, one way; bandwidth is that of the machine. Jobs are the sources of `search`,
under several names. They are compiled, or, so that the cores do not decide, a worker sleeps in their place.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from functools import partial
from pathlib import Path
from typing import Any

from jitlto.build.execution import transport
from jitlto.build.execution.dask import DaskExecutor
from jitlto.build.pipeline import build
from jitlto.compile.compiler import CompileJob
from jitlto.families import declaration
from jitlto.families.declaration import FamilyDeclaration
from tests.benchmarks.build_engine import copy_of_search
from tests.benchmarks.machine import command_line, describe
from tests.benchmarks.slow_cluster import SLEEP, cluster, cpu_seconds, nothing, sleep


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--latencies", type=float, nargs="+", default=[0, 5, 50], help="milliseconds, one way")
    parser.add_argument("--copies", type=int, default=2, help="of `search`, 32 fragments each")
    parser.add_argument("--tasks", type=int, default=3000, help="to measure what one costs")
    parser.add_argument("--only", choices=["builds", "tasks"])
    options = parser.parse_args()
    result: dict[str, Any] = describe(command_line())
    with tempfile.TemporaryDirectory() as directory:
        families = [_family(Path(directory) / f"copy{number}", number) for number in range(options.copies)]
        jobs = _jobs(families, Path(directory))
        if options.only != "tasks":
            result["builds"] = list(_builds(families, jobs, Path(directory), options))
        if options.only != "builds":
            result["tasks"] = _tasks(jobs, options.tasks)
            print(json.dumps(result["tasks"]), flush=True)
    result["load average"] = [round(each, 1) for each in os.getloadavg()]
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def _family(directory: Path, number: int) -> FamilyDeclaration:
    return declaration.load_family(copy_of_search(directory, number) / "family.toml")


def _jobs(families: Sequence[FamilyDeclaration], place: Path) -> list[CompileJob]:
    """The jobs of a build, as its scheduler submits them."""
    collected: list[CompileJob] = []
    original = transport.submit

    def submit(executor: Executor, job: CompileJob, run: Any) -> Future[Any]:
        collected.append(job)
        return original(executor, job, run)

    transport.submit = submit
    try:
        build(families, place / "local.fragdb", jobs=2)
    finally:
        transport.submit = original
    return collected


def _builds(
    families: Sequence[FamilyDeclaration], jobs: Sequence[CompileJob], place: Path, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    for latency in options.latencies:
        for workers in options.workers:
            with cluster(workers, latency) as (executor, network):
                figures: dict[str, Any] = {"latency, ms": latency, "workers": workers, "fragments": len(jobs)}
                for name in ("first", "again"):
                    sent, used, begin = network.counts(), cpu_seconds(network.scheduler), time.perf_counter()
                    report = build(families, place / "cluster.fragdb", executor=executor)
                    seconds = time.perf_counter() - begin
                    figures[name] = {
                        "seconds": round(seconds, 2),
                        "scheduler's CPU seconds": round(cpu_seconds(network.scheduler) - used, 2),
                        "kB": {key: round((after - sent[key]) / 1000) for key, after in network.counts().items()},
                    }
                    figures.setdefault("digest", report.digest)
                begin = time.perf_counter()
                _run(executor, jobs, sleep)
                figures[f"sleeping {SLEEP} s each"] = round(time.perf_counter() - begin, 2)
                figures["sleeping, ideal"] = round(SLEEP * len(jobs) / workers, 2)
            print(json.dumps(figures), flush=True)
            yield figures


def _run(executor: DaskExecutor, jobs: Sequence[CompileJob], run: Any) -> None:
    """Run jobs, submitted at once as a build does."""
    _check(wait([transport.submit(executor, job, run) for job in jobs]).done)


def _check(futures: set[Future[None]]) -> None:
    for future in futures:
        future.result()


def _tasks(jobs: Sequence[CompileJob], count: int) -> dict[str, Any]:
    """What a task costs: one that does nothing, and one with a job, which a worker's process opens."""
    repeated = [jobs[number % len(jobs)] for number in range(count)]
    with cluster(2, 0) as (executor, network):
        _run(executor, jobs, nothing)  # and the workers have all headers
        runs = {
            "empty": lambda: _check(wait([executor.submit(nothing, number) for number in range(count)]).done),
            "with a job": partial(_run, executor, repeated, nothing),
        }
        result: dict[str, Any] = {"tasks": count}
        for name, run in runs.items():
            sent, used = network.counts(), (cpu_seconds(network.scheduler), time.process_time())
            begin = time.perf_counter()
            run()
            result[name] = {
                "wall ms": round(1e3 * (time.perf_counter() - begin) / count, 3),
                "scheduler's CPU ms": round(1e3 * (cpu_seconds(network.scheduler) - used[0]) / count, 3),
                "client's CPU ms": round(1e3 * (time.process_time() - used[1]) / count, 3),
                "bytes": {key: round((after - sent[key]) / count) for key, after in network.counts().items()},
            }
    return result


if __name__ == "__main__":
    main()
