"""``transport`` in the three ways to build a kernel of many device functions: time, memory, speed; and fast math.

Whole program: all sources in one compile. Separate compilation: each source to relocatable machine code, then a link.
LTO: each source to LTO-IR, then a link that optimises and makes the machine code. All with NVRTC and
nvJitLink, in a fresh process each time, one compile after the other; compiler and linker have worked once before,
so that loading them is not counted. «One source changed»: what is to be done again then. Memory is the process's
largest resident set, less that before the first compile.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from jitlto.base.errors import NoDeviceError
from jitlto.base.versions import Architecture
from jitlto.cuda import device
from jitlto.launch.launcher import Launcher
from jitlto.plan.plan import LinkedKernel
from jitlto.runtime.family import KernelFamily
from tests.benchmarks.families import svg
from tests.benchmarks.families.build_once import MODES
from tests.benchmarks.families.cases import CASES, words
from tests.benchmarks.families.databases import BASE, small_family
from tests.benchmarks.families.part import Options, Outcome, free_memory, say, survive, table
from tests.benchmarks.families.timing import in_turn, summary
from tests.benchmarks.families.workloads import MAKE, SIZES
from tests.support.process import ROOT
from tests.support.transport_variants import CONFIGURATIONS

_STEPS = ("compile", "link", "again", "megabytes")
_WITHOUT_DEVICE = Architecture(90)


def run(options: Options) -> Outcome:
    """Two variants built in each mode; run, where there is a device."""
    try:
        target, on_device = device.architecture(), True
    except NoDeviceError as error:
        target, on_device = _WITHOUT_DEVICE, False
        say(f"{error.what}: nothing is launched")
    cases = (CASES["transport"][1], CASES["transport"][2])
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory(dir=options.work) as directory:
        family = small_family("transport", cases, BASE, Path(directory))
        for case in cases:
            row = {"configuration": case, "build": _builds(case, target, Path(directory), 1 if options.small else 5)}
            rows.append(row)
            for mode, figures in row["build"].items():
                shown = ", ".join(f"{step} {figures[step]['median']}" for step in _STEPS)
                say(f"{words('transport', case)}, {mode}: {shown}")
            if not on_device:
                continue
            with survive(words("transport", case), failures):
                cubins = {mode: (Path(directory) / f"{mode}.cubin").read_bytes() for mode in MODES}
                row["run"] = _run(family, case, cubins, target, options)
                say(f"milliseconds {row['run']['milliseconds']}")
            free_memory()
    variants = len(CONFIGURATIONS)
    first = {mode: rows[0]["build"][mode] for mode in MODES}
    every = {
        "kernels": variants,
        "whole, seconds": round(variants * first["whole"]["compile"]["median"], 1),
        "lto, seconds": round(
            32 / 16 * first["lto"]["compile"]["median"] + variants * first["lto"]["link"]["median"], 1
        ),
        "how": "computed, one core: as many compiles; 32 fragments at the mean of these 16, and as many links",
    }
    data = {"what": __doc__, "target": target.sm, "modes": MODES, "variants": rows, "all_kernels": every}
    return Outcome(data, _text(rows), {"": _plot(rows)}, failures)


def _builds(case: dict[str, str], target: Architecture, directory: Path, rounds: int) -> dict[str, Any]:
    """Builds in turn, each in a fresh process."""
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    for _ in range(rounds):
        for mode in MODES:
            module, output = "tests.benchmarks.families.build_once", str(directory / f"{mode}.cubin")
            command = [sys.executable, "-m", module, mode, str(target), json.dumps(case), output]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
            if done.returncode:
                raise RuntimeError(f"{mode}: {done.stderr[-1500:]}")
            found[mode].append(json.loads(done.stdout.splitlines()[-1]))
    return {mode: {step: summary([each[step] for each in builds]) for step in _STEPS} for mode, builds in found.items()}


def _run(
    family: KernelFamily, case: dict[str, str], cubins: dict[str, bytes], target: Architecture, options: Options
) -> dict[str, Any]:
    """Time of the kernels, and what fast math at the link does to time and results."""
    import cupy as cp

    plan = family.plan(arch=target, **case)
    kernels = {
        mode: Launcher.from_plan(plan, LinkedKernel(code, plan.entry.entry, target.sm, "", 0.0))
        for mode, code in cubins.items()
    }
    kernels["jitlto"] = family.launcher(**case)
    full, small = SIZES["transport"]
    work = MAKE["transport"](family, case, 0.01 if options.small else 1.0, small if options.small else full)
    for mode, kernel in kernels.items():
        try:
            work.verify(kernel)
        except AssertionError as error:
            raise AssertionError(f"{mode}: {error}") from error
    fast = family.launcher(link_options={"fast_math": True}, **case)
    names = [parameter.name for parameter in kernels["jitlto"].signature]
    values = dict(zip(names, work.call.arguments[3:], strict=True))

    def tallies(kernel: Any) -> tuple[Any, Any]:
        work.poison()
        work.call.by(kernel)()
        return cp.asnumpy(values["flux"]), cp.asnumpy(values["ledger"]).astype(np.float64)

    (flux, ledger), (fast_flux, fast_ledger) = tallies(kernels["jitlto"]), tallies(fast)
    absorbed, fast_absorbed = ledger[:, 6], fast_ledger[:, 6]
    error = np.sqrt((absorbed.var(ddof=1) + fast_absorbed.var(ddof=1)) / len(absorbed))
    sides = {**kernels, "fast math": fast}
    times = in_turn({name: work.call.by(kernel) for name, kernel in sides.items()}, options.rounds)
    medians = {name: statistics.median(each) for name, each in times.items()}
    return {
        "sizes": dict(work.sizes),
        "milliseconds": {name: summary(each) for name, each in times.items()},
        "by_lto": {name: round(value / medians["lto"], 4) for name, value in medians.items()},
        "registers": {name: kernel.kernel.attributes[device.ordinal()].num_regs for name, kernel in sides.items()},
        "fast_math": {
            "fluxes_that_differ": int(np.count_nonzero(flux != fast_flux)),
            "fluxes": int(flux.size),
            "absorbed_relative_difference": float(abs(fast_absorbed.sum() / max(absorbed.sum(), 1) - 1)),
            "absorbed_standard_errors_apart": float(
                abs(fast_absorbed.mean() - absorbed.mean()) / error if error else 0.0
            ),
        },
    }


def _text(rows: list[dict[str, Any]]) -> str:
    build = table(
        ("transport", "mode", "compile s", "link s", "one source changed s", "memory MB", "kernel ms"),
        [
            (words("transport", row["configuration"]), mode, *(figures[step]["median"] for step in _STEPS),
             row.get("run", {}).get("milliseconds", {}).get(mode, {}).get("median"))
            for row in rows
            for mode, figures in row["build"].items()
        ],
    )  # fmt: skip
    fast = [
        f"fast math, {words('transport', row['configuration'])}: {row['run']['by_lto']['fast math']} of the time, "
        f"absorbed {row['run']['fast_math']['absorbed_relative_difference']:.1e} off, "
        f"{row['run']['fast_math']['absorbed_standard_errors_apart']:.1f} standard errors"
        for row in rows
        if "run" in row
    ]
    return "\n".join([build, *fast])


def _plot(rows: list[dict[str, Any]]) -> str:
    series = ["all compiles", "link", "again, when one source has changed"]
    groups = [
        svg.Group(
            f"{words('transport', row['configuration'])}: {MODES[mode]}",
            [svg.Value.of(figures[step]) for step in ("compile", "link", "again")],
        )
        for row in rows
        for mode, figures in row["build"].items()
    ]
    return svg.bars("Time to build one kernel of transport, 16 sources", series, groups, "seconds; lines: quartiles")
