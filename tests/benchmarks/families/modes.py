"""Kernel time in all forms: LTO-linked, whole program, separately compiled, mixed, through pointers."""

import statistics
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from jitlto.cuda import device
from jitlto.launch.launcher import Launcher
from jitlto.runtime.family import KernelFamily
from tests.benchmarks import svg
from tests.benchmarks.families import forms, pointers
from tests.benchmarks.families.cases import CASES
from tests.benchmarks.families.databases import BASE, NAMES, free_memory, small_family
from tests.benchmarks.families.workloads import MAKE, SIZES, Workload
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import device_milliseconds, in_turn, ratio, summaries

_AT_LEAST_MS = 1.5


def measure(options: Options) -> Result:
    """Every case of every family."""
    target = device.architecture()
    rows: list[dict[str, Any]] = []
    for name in NAMES:
        with tempfile.TemporaryDirectory(dir=options.work) as directory:
            base, native = (small_family(name, CASES[name], each, Path(directory)) for each in (BASE, target))
            with ThreadPoolExecutor() as pool:
                made = list(pool.map(lambda case, b=base, n=native: forms.make(case, b, n, target), CASES[name]))
            for case, each in zip(CASES[name], made, strict=True):
                rows.append(_measure(base, case, each, options))
                print(rows[-1], flush=True)
                free_memory()
    return {
        "forms": forms.FORMS,
        "not_optimised_in_mixed": pointers.NOT_OPTIMISED,
        "through_pointers": pointers.GROUPS,
        "ratios": {name: _summary([row["ratios"] for row in rows if row["family"] == name]) for name in NAMES},
        "kernels": rows,
    }


def _measure(
    family: KernelFamily, case: Mapping[str, str], made: Mapping[str, forms.Form], options: Options
) -> dict[str, Any]:
    kernels = {
        name: Launcher(form.plan.chosen, form.linked, partial(getattr, form, "plan")) for name, form in made.items()
    }
    work = _grown(family, case, kernels["lto_base"], options)
    for name, kernel in kernels.items():
        try:
            work.verify(kernel)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
    sides = {name: work.call.by(kernel) for name, kernel in kernels.items()}
    times = in_turn(sides, options.rounds, device_milliseconds, warm=2)
    return {
        "family": family.name,
        "configuration": dict(case),
        "sizes": dict(work.sizes),
        "launches": options.rounds,
        "milliseconds": summaries(times),
        "ratios": {name: ratio(times, one, other) for name, (one, other) in forms.RATIOS.items()},
    }


def _grown(family: KernelFamily, case: Mapping[str, str], kernel: Launcher, options: Options) -> Workload:
    """A problem large enough that a launch can be timed."""
    make, (full, small) = MAKE[family.name], SIZES[family.name]
    if options.small:
        return make(family, case, 0.01, small)
    scale = 1.0
    while True:
        work = make(family, case, scale, full)
        launch = work.call.by(kernel)
        launch()
        elapsed = min(device_milliseconds(launch) for _ in range(3))
        if elapsed >= _AT_LEAST_MS or scale > 64:
            return replace(work, sizes={**work.sizes, "scale": scale})
        del work, launch
        free_memory()
        scale *= max(2.0, 1.3 * _AT_LEAST_MS / elapsed)


def _summary(ratios: list[dict[str, float]]) -> dict[str, Any]:
    """Median, smallest and largest ratio of a family's kernels."""
    columns = {name: [row[name] for row in ratios] for name in forms.RATIOS}
    return {
        name: {"median": round(statistics.median(each), 4), "smallest": min(each), "largest": max(each)}
        for name, each in columns.items()
    }


def plots(result: Result) -> dict[str, str]:
    return {"": _plot_families(result["ratios"])}


def _plot_families(summaries: dict[str, Any]) -> str:
    """The ratios: medians over a family's kernels, and the smallest and the largest."""
    groups = [
        svg.Group(f"{ratio}: {name}", [None] * n + [svg.Value(found["median"], found["smallest"], found["largest"])])
        for ratio in forms.RATIOS
        for n, name in enumerate(summaries)
        for found in [summaries[name][ratio]]
    ]
    return svg.bars(
        "Kernel time, one form by another",
        list(summaries),
        groups,
        "ratio of times: median over kernels; lines: smallest and largest",
        reference=1.0,
    )
