"""Tuning against an exhaustive search: how far from the best it ends, at which share of the time, and what it gains.

python -m tests.benchmarks.tuning --output docs/benchmarks/tuning.json   # and tuning.svg beside it; two minutes

Needs a GPU. For each problem of `search`: a tuning that is saved, nine more that measure all
anew, and all variants timed in turn, many times each, or twice if they take ten times as long as the fastest. The
exhaustive search says which variant is the best; the regret is how much longer the chosen one takes there. The time of
a tuning is given as a share of that of 100 launches of each variant.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

from jitlto.record.tuning import Variant
from jitlto.runtime import session
from jitlto.runtime.family import KernelFamily
from jitlto.tuning.bench import Bench
from jitlto.tuning.best import Best, Problem
from tests.benchmarks import script, svg
from tests.benchmarks.families.databases import BASE, small_family
from tests.benchmarks.script import Options, Result

_TUNINGS = 10
_EXHAUSTIVE = 100  # times of each variant
_BUDGET = 20.0  # seconds of a tuning
_SEARCH = {
    "data_type": "float", "out_type": "float", "idx_type": "uint32_t", "distance_name": "euclidean",
    "filter_name": "filter_none",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A problem of a family, and what makes its workload."""

    family: KernelFamily
    problem: Mapping[str, object]
    make: Callable[[], tuple[Callable[[Best, Any], object], list[Any]]]  # what launches a variant, and its results

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={value}" for name, value in self.problem.items() if isinstance(value, int))
        return f"{self.family.name} {sizes}"


def _search(work: Path) -> Iterator[Case]:
    shapes = [("optimized", "1"), ("optimized", "4"), ("standard", "8"), ("standard", "16")]
    wanted = [_SEARCH | {"optimized_name": name, "veclen": veclen} for name, veclen in shapes]
    family = small_family("search", wanted, BASE, work)

    def make(rows: int, queries: int, dim: int) -> tuple[Callable[[Best, Any], object], list[Any]]:
        dataset, vectors = (cp.random.standard_normal((n, dim), np.float32) for n in (rows, queries))
        indices, distances = cp.zeros(queries, np.uint32), cp.full(queries, np.nan, np.float32)

        def launch(best: Best, stream: Any) -> None:
            is_optimized = dict(best.variant.parameters)["optimized_name"] == "optimized"
            grid = queries if is_optimized else -(-queries // best.block[0])
            arguments = dataset, vectors, indices, distances, rows, queries, dim, None
            best.launcher(stream, grid, best.block, *arguments)

        return launch, [distances]

    for rows, queries, dim in ((4_000, 1, 128), (20_000, 132, 128), (4_000, 2_000, 64), (1_000, 20_000, 32)):
        sizes = {"num_rows": rows, "num_queries": queries, "dim": dim}
        yield Case(family, {**_SEARCH, **sizes}, lambda s=(rows, queries, dim): make(*s))  # type: ignore[misc]


def _measure(case: Case) -> dict[str, Any]:
    launch, results = case.make()
    cp.cuda.Device().synchronize()
    first = case.family.tune(case.problem, launch, results, budget=_BUDGET)
    answers, times, shares = [], [], []
    for number in range(_TUNINGS):
        begin = time.monotonic()
        report = first if not number else case.family.tune(
            case.problem, launch, results, budget=_BUDGET, save=False
        )  # fmt: skip
        answers.append(str(report.entry.chosen.variant))
        times += [time.monotonic() - begin] if number else []
        candidates = report.outcome.candidates
        shares.append(sum(sum(c.taken) for c in candidates) / sum(_EXHAUSTIVE * c.seconds for c in candidates))
    exhaustive = _exhaustive(case, launch, [trial.variant for trial in first.entry.trials])
    best, default = min(exhaustive.values()), exhaustive[str(first.entry.default.variant)]
    regrets = [exhaustive[answer] / best - 1 for answer in answers]
    return {
        "problem": str(case),
        "variants": len(first.entry.trials) + len(first.outcome.rejected),
        "rejected": {str(variant): why for variant, why in first.outcome.rejected.items()},
        "chosen": answers[0],
        "answers": dict.fromkeys(answers, 0) | {answer: answers.count(answer) for answer in answers},
        "default": str(first.entry.default.variant),
        "best": min(exhaustive, key=lambda name: exhaustive[name]),
        "speed_up": round(default / exhaustive[answers[0]], 4),
        "largest_speed_up": round(default / best, 4),
        "regret": {"median": round(statistics.median(regrets), 4), "max": round(max(regrets), 4)},
        "share_of_exhaustive_time": {"median": round(statistics.median(shares), 4), "max": round(max(shares), 4)},
        "seconds_of_a_tuning": round(statistics.median(times), 3),
        "default_microseconds": round(1e6 * default, 3),
        "microseconds": {name: round(1e6 * value, 3) for name, value in sorted(exhaustive.items(), key=lambda i: i[1])},
    }


def _exhaustive(
    case: Case, launch: Callable[[Best, Any], object], variants: list[Variant], seconds: float = 2.5
) -> dict[str, float]:
    """Medians of all variants, timed in turn, as often as the seconds allow: 10 to 100 times."""
    asked = Problem.read(case.family, case.problem)
    times: dict[str, list[float]] = {str(variant): [] for variant in variants}
    with closing(Bench()) as bench:
        launches = {}
        for variant in variants:
            launches[str(variant)] = partial(launch, Best(asked.launcher(variant), variant), bench.stream)
        end = time.monotonic() + seconds
        names = list(launches)
        for turn in range(_EXHAUSTIVE):
            if turn >= 10 and time.monotonic() > end:
                break
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                times[name].append(bench.time(launches[name]))
            if turn == 1:
                fastest = min(map(min, times.values()))
                names = [name for name in names if min(times[name]) < 10 * fastest]
    return {name: statistics.median(values) for name, values in times.items()}


def measure(options: Options) -> Result:
    end = time.monotonic() + options.limit
    rows: list[dict[str, Any]] = []
    os.environ["JITLTO_WISDOM"] = str(options.place / "own.wisdom")
    session.default.reset()
    for case in _search(options.place):
        if time.monotonic() < end:
            rows.append(_measure(case))
            print(rows[-1], flush=True)
    return {
        "method": __doc__,
        "worst": {
            "regret": max(row["regret"]["max"] for row in rows),
            "share_of_exhaustive_time": max(row["share_of_exhaustive_time"]["max"] for row in rows),
            "answers_of_ten_tunings": max(len(row["answers"]) for row in rows),
        },
        "problems": rows,
    }


def plots(result: Result) -> dict[str, str]:
    groups = [
        svg.Group(row["problem"], [svg.Value.certain(row["speed_up"]), svg.Value.certain(row["largest_speed_up"])])
        for row in result["problems"]
    ]
    title, unit = "Tuning: how many times as fast as the default", "time of the default / time of the variant"
    series = ["chosen by tuning", "best of an exhaustive search"]
    return {"": svg.bars(title, series, groups, unit, reference=1.0)}


if __name__ == "__main__":
    script.run(__doc__, measure, plots, limit=110.0)  # seconds after which no further problem is begun
