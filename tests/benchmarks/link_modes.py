"""The speed of linked kernels: LTO-linked and PTX-linked fragments against the same code compiled whole as one source.

    python -m tests.benchmarks.link_modes --output docs/benchmarks/link_modes.json

Every entrypoint of `search` is timed, with the distances and filters in turn, in six forms that all run on the device's
architecture:

* ``lto_base``, ``lto_native``: fragments of LTO-IR made for compute_75, and for the device's own architecture
* ``ptx_base``, ``ptx_native``: the same fragments' relocatable PTX, linked without link-time optimisation
* ``whole_base``, ``whole_native``: the sources of the fragments in one file, compiled for the one or the other

The forms of a kernel take turns, launch by launch, so that clocks and neighbours weigh on all alike. Sizes are raised
until a launch takes a millisecond and more; the data are several times the L2 cache. Before they are timed, outputs are
poisoned, and afterwards compared with float64.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
from cuda.core import Program, ProgramOptions

from jitlto.base.versions import Architecture
from jitlto.build.pipeline import build
from jitlto.cuda import device, toolkit
from jitlto.cuda.nvjitlink import InputKind, LinkInput, link
from jitlto.database import FragmentDatabase
from jitlto.families import declaration as families
from jitlto.families.templates import RenderedSource, render_family
from jitlto.launch.launcher import Launcher
from jitlto.plan.plan import LinkedKernel, Plan
from jitlto.runtime.family import KernelFamily
from tests.benchmarks.machine import command_line, describe
from tests.support.search_reference import DTYPES, Case, check, pack_bitset

_DIM = 128
_BASE = Architecture(75)
_AT_LEAST_MS = 2.0
_SAMPLE = 4  # queries that are checked


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--launches", type=int, default=25, help="timed launches of each form")
    parser.add_argument("--kernels", type=int, default=24, help="entrypoints to time")
    options = parser.parse_args()

    native = device.architecture()
    with tempfile.TemporaryDirectory() as directory:
        kernels = _families(Path(directory), native)
        rendered = {item.key: item for item in render_family(families.load_family(families.find_family("search")))}
        rows = []
        entries = [dict(f.key.parameters) for f in kernels[_BASE].index.entrypoints][: options.kernels]
        choices = itertools.cycle(itertools.product(("euclidean", "inner_product"), ("filter_none", "filter_bitset")))
        for entry, (distance, filter_) in zip(entries, choices, strict=False):
            configuration = entry | {"distance_name": distance, "filter_name": filter_}
            rows.append(_measure(configuration, kernels, rendered, native, options.launches))
            print(_line(rows[-1]), flush=True)
        optimized = [_optimized_gain(kernels[native], data_type) for data_type in ("float", "__half")]
    worst = {name: max(row["ratios"][name] for row in rows) for name in rows[0]["ratios"]}
    median = {name: statistics.median(row["ratios"][name] for row in rows) for name in rows[0]["ratios"]}
    print("median over kernels:", {name: round(value, 4) for name, value in median.items()})
    print("largest:            ", {name: round(value, 4) for name, value in worst.items()})
    for row in optimized:
        print(f"optimized against standard, {row['data_type']}, one problem:", round(row["standard/optimized"], 2))
    if options.output:
        result = {
            "machine": describe(command_line()),
            "dim": _DIM,
            "launches": options.launches,
            "median_ratios": median,
            "largest_ratios": worst,
            "optimized_against_standard": optimized,
            "kernels": rows,
        }
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def _families(directory: Path, native: Architecture) -> dict[Architecture, KernelFamily]:
    declared = families.load_family(families.find_family("search"))
    made = {}
    for architecture in (_BASE, native):
        path = directory / f"search_{architecture}.fragdb"
        build([replace(declared, architectures=(architecture,))], path)
        made[architecture] = KernelFamily("search", FragmentDatabase(path))
    return made


def _measure(
    configuration: dict[str, str],
    kernels: dict[Architecture, KernelFamily],
    rendered: dict[Any, RenderedSource],
    native: Architecture,
    launches: int,
) -> dict[str, Any]:
    forms: dict[str, Launcher] = {}
    for name, architecture in (("base", _BASE), ("native", native)):
        for mode in ("lto", "ptx"):
            plan = kernels[architecture].plan(arch=native, link_mode=mode, **configuration)
            forms[f"{mode}_{name}"] = Launcher.from_plan(plan, plan.link())
        forms[f"whole_{name}"] = _whole(plan, rendered, architecture, native)
    problem = _Problem(configuration)
    problem.grow(forms["lto_base"])
    for name, launcher in forms.items():
        problem.verify(launcher, name)
    times: dict[str, list[float]] = {name: [] for name in forms}
    order = list(forms)
    for turn in range(launches + 2):
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            elapsed = problem.time(forms[name])
            if turn >= 2:
                times[name].append(elapsed)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "configuration": configuration,
        "rows": problem.rows,
        "queries": problem.queries,
        "median_ms": medians,
        "quartiles_ms": {name: statistics.quantiles(values, n=4)[::2] for name, values in times.items()},
        "ratios": {
            "lto/whole, base": medians["lto_base"] / medians["whole_base"],
            "lto/whole, native": medians["lto_native"] / medians["whole_native"],
            "lto base/whole native": medians["lto_base"] / medians["whole_native"],
            "ptx/lto, base": medians["ptx_base"] / medians["lto_base"],
            "ptx/lto, native": medians["ptx_native"] / medians["lto_native"],
        },
    }


def _optimized_gain(kernels: KernelFamily, data_type: str) -> dict[str, Any]:
    """Both kernels on one and the same problem, each with the vector length that suits it."""
    base = {"data_type": data_type, "out_type": "float", "idx_type": "uint32_t", "distance_name": "euclidean"}
    medians = {}
    problem = None
    for name, veclen in (("optimized", "4"), ("standard", "8")):
        configuration = base | {"optimized_name": name, "veclen": veclen, "filter_name": "filter_none"}
        launcher = kernels.planner(**configuration).launcher()
        if problem is None:
            problem = _Problem(configuration)
            problem.rows = 1 << 16
            problem.draw()
        problem.optimized = name == "optimized"
        problem.verify(launcher, name)
        medians[name] = statistics.median(problem.time(launcher) for _ in range(9))
    return {
        "data_type": data_type,
        "rows": problem.rows if problem else 0,
        "queries": problem.queries if problem else 0,
        "median_ms": medians,
        "standard/optimized": medians["standard"] / medians["optimized"],
    }


def _whole(
    plan: Plan, rendered: dict[Any, RenderedSource], compiled_for: Architecture, target: Architecture
) -> Launcher:
    """What one does without fragments: the same sources in one file, definitions first, compiled by NVRTC."""
    declared = families.load_family(families.find_family("search"))
    text = "\n".join(rendered[fragment.key].text for fragment in (*plan.fragments[1:], plan.fragments[0]))
    include = [str(path) for path in (*declared.include, *toolkit.header_roots())]
    whole = compiled_for == target
    arch = target.sm if whole else compiled_for.compute
    options = ProgramOptions(std=declared.std, arch=arch, include_path=include)
    code = bytes(Program(text, "c++", options).compile("cubin" if whole else "ptx").code)
    if not whole:
        code = link([LinkInput(InputKind.PTX, code, "whole.ptx")], target, []).data
    return Launcher.from_plan(plan, LinkedKernel(code, plan.entry.entry, target.sm, "", 0.0))


class _Problem:
    """One kernel's data on the device, drawn afresh, and what a launch of it needs."""

    def __init__(self, configuration: dict[str, str]) -> None:
        self.configuration = configuration
        self.optimized = configuration["optimized_name"] == "optimized"
        properties = device.current().properties
        # A few blocks for every multiprocessor; data far above the L2 for the kernel that streams rows.
        self.queries = properties.multiprocessor_count * (2 if self.optimized else 128)
        self.rows = 1 << 19 if self.optimized else 2048
        self.draw()

    def draw(self) -> None:
        """Draw data of the present size."""
        data_type = DTYPES[self.configuration["data_type"]]
        random = cp.random.default_rng()
        self.dataset = random.standard_normal((self.rows, _DIM), np.float32).astype(data_type)
        self.query_data = random.standard_normal((self.queries, _DIM), np.float32).astype(data_type)
        filtered = self.configuration["filter_name"] == "filter_bitset"
        self.mask = np.random.default_rng().random(self.rows) < 0.5 if filtered else None
        self.words = None if self.mask is None else cp.asarray(pack_bitset(self.mask))
        self.indices = cp.empty(self.queries, DTYPES[self.configuration["idx_type"]])
        self.distances = cp.empty(self.queries, DTYPES[self.configuration["out_type"]])

    def grow(self, launcher: Launcher) -> None:
        """Raise the number of rows until a launch takes long enough to time."""
        self.time(launcher)
        while self.time(launcher) < _AT_LEAST_MS:
            self.rows *= 2
            self.draw()
            self.time(launcher)

    def launch(self, launcher: Launcher) -> None:
        grid, block = (self.queries, 256) if self.optimized else (-(-self.queries // 128), 128)
        launcher(cp.cuda.get_current_stream(), grid, block, self.dataset, self.query_data, self.indices,
                 self.distances, self.rows, self.queries, _DIM, self.words)  # fmt: skip

    def time(self, launcher: Launcher) -> float:
        """Milliseconds of one launch on the device."""
        begin, end = cp.cuda.Event(), cp.cuda.Event()
        begin.record()
        self.launch(launcher)
        end.record()
        end.synchronize()
        return float(cp.cuda.get_elapsed_time(begin, end))

    def verify(self, launcher: Launcher, name: str) -> None:
        """Compare a sample of the results with float64, outputs poisoned first."""
        self.indices.fill(12345)
        self.distances.fill(np.nan)
        self.launch(launcher)
        sample = np.random.default_rng().choice(self.queries, _SAMPLE, replace=False)
        case = Case(cp.asnumpy(self.dataset), cp.asnumpy(self.query_data[sample]), self.mask)
        try:
            check(cp.asnumpy(self.indices[sample]), cp.asnumpy(self.distances[sample]), case,
                  self.configuration["distance_name"], self.configuration["out_type"],
                  self.configuration["idx_type"])  # fmt: skip
        except AssertionError as error:
            raise SystemExit(f"{name} {self.configuration}: {error}") from error
        if bool(cp.isnan(self.distances).any()):
            raise SystemExit(f"{name} {self.configuration}: a query was not answered")


def _line(row: dict[str, Any]) -> str:
    times = "  ".join(f"{name} {value:7.3f}" for name, value in row["median_ms"].items())
    ratios = "  ".join(f"{name} {value:.3f}" for name, value in row["ratios"].items())
    return f"{','.join(row['configuration'].values())}\n    ms: {times}\n    {ratios}"


if __name__ == "__main__":
    main()
