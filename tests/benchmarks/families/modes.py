"""Kernel time in all forms: LTO-linked, whole program, separately compiled, mixed, through pointers."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from jitlto.cuda import device
from jitlto.launch.launcher import Launcher
from jitlto.runtime.family import KernelFamily
from tests.benchmarks.families import forms, pointers, svg
from tests.benchmarks.families.cases import CASES, words
from tests.benchmarks.families.databases import BASE, NAMES, small_family
from tests.benchmarks.families.part import Options, Outcome, free_memory, say, survive, table
from tests.benchmarks.families.timing import in_turn, milliseconds, summary
from tests.benchmarks.families.workloads import MAKE, SIZES, Workload

_AT_LEAST_MS = 1.5


def run(options: Options) -> Outcome:
    """Every case of every family."""
    target = device.architecture()
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    for name in NAMES:
        with tempfile.TemporaryDirectory(dir=options.work) as directory, survive(name, failures):
            base = small_family(name, CASES[name], BASE, Path(directory))
            native = small_family(name, CASES[name], target, Path(directory))
            say(f"{name}: built")
            with ThreadPoolExecutor() as pool:
                futures = [pool.submit(forms.make, case, base, native, target) for case in CASES[name]]
            for case, future in zip(CASES[name], futures, strict=True):
                with survive(f"{name} {words(name, case)}", failures):
                    rows.append(_measure(base, case, future.result(), options))
                    say(_line(rows[-1]))
                free_memory()
    summaries = _summaries(rows)
    return Outcome(
        {
            "forms": forms.FORMS,
            "not_optimised_in_mixed": pointers.NOT_OPTIMISED,
            "through_pointers": pointers.GROUPS,
            "ratios": summaries,
            "kernels": rows,
        },
        _text(rows, summaries),
        {"": _plot_families(summaries), "kernels": _plot(rows)} if rows else {},
        failures,
    )


def _measure(
    family: KernelFamily, case: Mapping[str, str], made: Mapping[str, forms.Form], options: Options
) -> dict[str, Any]:
    kernels = {name: Launcher.from_plan(form.plan, form.linked) for name, form in made.items()}
    work = _grown(family, case, kernels["lto_base"], options)
    for name, kernel in kernels.items():
        try:
            work.verify(kernel)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
    times = in_turn({name: work.call.by(kernel) for name, kernel in kernels.items()}, options.rounds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "family": family.name,
        "configuration": dict(case),
        "sizes": dict(work.sizes),
        "launches": options.rounds,
        "milliseconds": {name: summary(values) for name, values in times.items()},
        "ratios": {name: round(medians[one] / medians[other], 4) for name, (one, other) in forms.RATIOS.items()},
        "resources": {name: _resources(kernel) for name, kernel in kernels.items()},
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
        elapsed = min(milliseconds(launch) for _ in range(3))
        if elapsed >= _AT_LEAST_MS or scale > 64:
            return replace(work, sizes={**work.sizes, "scale": scale})
        del work, launch
        free_memory()
        scale *= max(2.0, 1.3 * _AT_LEAST_MS / elapsed)


def _resources(kernel: Launcher) -> dict[str, int]:
    found = kernel.kernel.attributes[device.ordinal()]
    return {"registers": found.num_regs, "local": found.local_size_bytes, "shared": found.shared_size_bytes}


def _line(row: dict[str, Any]) -> str:
    times = "  ".join(f"{name} {value['median']:.3f}" for name, value in row["milliseconds"].items())
    return f"{row['family']} {words(row['family'], row['configuration'])}\n    ms: {times}"


def _summaries(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Median, smallest and largest ratio for each family."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(row["family"] for row in rows):
        own = [row["ratios"] for row in rows if row["family"] == name]
        found[name] = {
            ratio: {
                "median": round(statistics.median(row[ratio] for row in own), 4),
                "smallest": min(row[ratio] for row in own),
                "largest": max(row[ratio] for row in own),
            }
            for ratio in forms.RATIOS
        }
    return found


def _text(rows: list[dict[str, Any]], summaries: dict[str, Any]) -> str:
    times = table(
        ("ms, median", *forms.FORMS),
        [
            (f"{row['family']}: {words(row['family'], row['configuration'])}",
             *(row["milliseconds"][name]["median"] for name in forms.FORMS))
            for row in rows
        ],
    )  # fmt: skip
    ratios = table(
        ("ratio, median (smallest to largest)", *summaries),
        [
            (ratio, *(f"{s[ratio]['median']:.3f} ({s[ratio]['smallest']:.3f}–{s[ratio]['largest']:.3f})"
                      for s in summaries.values()))
            for ratio in forms.RATIOS
        ],
    )  # fmt: skip
    return f"{times}\n\n{ratios}"


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


def _plot(rows: list[dict[str, Any]]) -> str:
    """Times by that of the whole program at the device's architecture."""
    shown = [name for name in forms.FORMS if name != "whole_native"]
    groups = [
        svg.Group(
            f"{row['family']}: {words(row['family'], row['configuration'])}",
            [
                svg.Value.of(row["milliseconds"][name], 1 / row["milliseconds"]["whole_native"]["median"])
                for name in shown
            ],
        )
        for row in rows
    ]
    return svg.bars(
        "Kernel time by how the kernel was made",
        [forms.FORMS[name] for name in shown],
        groups,
        "time / time of the whole program for the device's architecture; lines: quartiles",
        reference=1.0,
    )
