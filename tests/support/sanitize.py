"""compute-sanitizer on a small run of every family: no access out of bounds, no race in shared memory.

    python -m tests.support.sanitize
    python -m tests.support.sanitize --only fft --tool racecheck

Needs a GPU and compute-sanitizer, of the toolkit. First each tool has to find an error that is planted, so that a
tool that sees nothing is not taken for a family without errors. Databases are built beforehand, and kernels linked:
what runs under the tool launches kernels and little else. CuPy's pool is off, for within a block of a pool nothing is
out of bounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from jitlto.build.pipeline import build
from jitlto.check.covering_array import choose_cover
from jitlto.families import declaration
from jitlto.runtime.family import KernelFamily, load
from tests.support.process import ROOT

TOOLS = ("memcheck", "racecheck")
_FOUND = 99  # the exit status of a run in which a tool finds something
#: Families whose database is that of another, which uses them.
_HELD_BY = {"ivf_flat": "ivf_flat_batch"}
_LIMIT = 540  # seconds for one tool and family

_PLANTED = """
extern "C" __global__ void memcheck(float* x) { x[threadIdx.x + 1] = 1; }
extern "C" __global__ void racecheck(float* x) {
  __shared__ float shared[64];
  shared[threadIdx.x] = threadIdx.x;
  x[threadIdx.x] = shared[63 - threadIdx.x];
}
"""


def plant(tool: str) -> None:
    """Launch a kernel with an error that a tool is there to find."""
    import cupy as cp

    cp.cuda.set_allocator(None)
    x = cp.zeros(64, cp.float32)
    cp.RawKernel(_PLANTED, tool)((1,), (64,), (x,))
    cp.cuda.Device().synchronize()


def ivf_flat(kernels: KernelFamily) -> int:
    """Scans of a few small lists by kernels of every capacity, type, order, filter and norm, held against NumPy."""
    from tests.families.test_ivf_flat_gpu import has_real_results, verify

    random = np.random.default_rng(1)
    chosen = _few(kernels, ("capacity", "data_type", "veclen", "order", "filter_name", "compute_norm"))
    chosen = [configuration for configuration in chosen if has_real_results(configuration)]
    for number, configuration in enumerate(chosen):
        verify(kernels, random, configuration, (7, 32, 100)[number % 3], 150)
    return len(chosen)


def ivf_flat_batch(kernels: KernelFamily) -> int:
    """Tiles of a few small lists by kernels of every type, norm, capacity and order, held against NumPy."""
    from tests.families.test_ivf_flat_batch_gpu import covering, verify

    random = np.random.default_rng(1)
    chosen = covering(kernels, 1)
    for number, configuration in enumerate(chosen):
        verify(kernels, random, configuration, (7, 32, 100)[number % 3], 700)
    return 6 * len(chosen)


def fft(kernels: KernelFamily) -> int:
    """Transforms of a few rows of each kind, type and some sizes, with each of the callbacks."""
    import cupy as cp

    from docs.examples import fft as front
    from tests.support.fft_reference import DTYPES, make_rows

    random = np.random.default_rng(1)
    chosen = _few(kernels, ("kind", "direction", "data_type", "size", "load", "store"))
    for configuration in chosen:
        size, kind, dtype = int(configuration["size"]), configuration["kind"], DTYPES[configuration["data_type"]]
        load_, store = configuration["load"], configuration["store"]
        read = size // 2 + 1 if kind == "c2r" else size
        written = size // 2 + 1 if kind == "r2c" else size
        plan = front.plan(
            size, 5, dtype, kind, configuration["direction"], load=load_, store=store, family=kernels,
            load_info={"scale": 0.5, "window": np.ones(read), "pad": read // 2}.get(load_),
            store_info={"scale": 0.5, "window": np.ones(written), "crop": max(1, written // 2)}.get(store),
        )  # fmt: skip
        length = read // 2 if load_ == "pad" else read
        plan(cp.asarray(make_rows(random, 5, length, dtype, real=kind == "r2c")))
    return len(chosen)


def transport(kernels: KernelFamily) -> int:
    """A few histories of variants that have all pairs of values, in both link modes."""
    from dataclasses import replace

    from docs.examples.transport import simulate
    from tests.support.transport_physics import balanced, problem_of
    from tests.support.transport_variants import COVER

    for configuration in COVER:
        problem, run = problem_of(configuration)
        for mode in ("lto", "ptx"):
            balanced(simulate(kernels, problem, replace(run, particles=500, batches=3), link_mode=mode))
    return 2 * len(COVER)


def search(kernels: KernelFamily) -> int:
    """Every kernel, on a few rows that are aligned and on a few that are not, held against NumPy."""
    from tests.families.test_search_gpu import agrees

    random = np.random.default_rng(1)
    every = list(kernels.configurations())
    for number, configuration in enumerate(every):
        agrees(random, kernels.launcher(**configuration), configuration, 61, (3, 20, 64)[number % 3], number % 2)
    return len(every)


def transform(kernels: KernelFamily) -> int:
    """A caller's function on numbers that fill the last block in part."""
    import cupy as cp

    source = " ".join(f"__device__ {real} user_transform({real} x) {{ return x + 1; }}" for real in ("float", "double"))
    for real, dtype in (("float", np.float32), ("double", np.float64)):
        values = cp.arange(1001, dtype=dtype)
        output = cp.empty_like(values)
        kernels.planner(data_type=real).add_source(source).launcher()(None, 3, 128, values, output, 1001)
        assert bool((output == values + 1).all())
    return 2


FAMILIES: dict[str, Callable[[KernelFamily], int]] = {
    "ivf_flat": ivf_flat,
    "ivf_flat_batch": ivf_flat_batch,
    "fft": fft,
    "transport": transport,
    "search": search,
    "transform": transform,
}


def _few(kernels: KernelFamily, names: Sequence[str]) -> list[dict[str, str]]:
    """Kernels in which each value of the parameters occurs."""
    every = list(kernels.configurations())
    return [every[place] for place in choose_cover([{name: c[name] for name in names} for c in every], 1)[0]]


def _run(name: str, database: Path) -> None:
    """What runs under a tool, and before that without one."""
    import cupy as cp

    cp.cuda.set_allocator(None)
    count = FAMILIES[name](load(name, database))
    cp.cuda.Device().synchronize()
    print(f"{name}: {count} launches")


def main() -> None:
    """Build, run everything under every tool, say what was found; 1 if anything was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", choices=list(FAMILIES), help="this family; may be given several times"
    )
    parser.add_argument("--tool", action="append", choices=TOOLS, help="this tool; may be given several times")
    parser.add_argument("--work", type=Path, help="where databases are built and kept")
    parser.add_argument("--run", help=argparse.SUPPRESS)  # what this module starts under a tool
    options = parser.parse_args()
    if options.run in TOOLS:
        plant(options.run)
        return
    if options.run:
        _run(options.run, options.work / f"{_HELD_BY.get(options.run, options.run)}.fragdb")
        return
    sanitizer = _sanitizer()
    names, tools = options.only or list(FAMILIES), options.tool or list(TOOLS)
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).absolute()
        work.mkdir(parents=True, exist_ok=True)
        outcomes = {}
        for tool in tools:
            status, text = _under(sanitizer, tool, tool, work)
            if status != _FOUND:
                outcomes[f"{tool} finds what is planted"] = f"no: exit status {status}\n{text[-2000:]}"
        for name in names if not outcomes else ():
            holder = _HELD_BY.get(name, name)
            path = work / f"{holder}.fragdb"
            if not path.is_file():
                build([declaration.load_family(declaration.find_family(holder))], path)
            status, text = _under(None, "", name, work)  # links all kernels, into the cache
            print(
                f"{name}, without a tool: {text.strip() if status == 0 else f'exit status {status}{text}'}", flush=True
            )
            if status:
                outcomes[name] = f"fails without a tool: exit status {status}"
                continue
            for tool in tools:
                begin = time.perf_counter()
                status, text = _under(sanitizer, tool, name, work)
                outcomes[f"{tool} {name}"] = "clean" if status == 0 else f"exit status {status}\n{text[-6000:]}"
                seconds = time.perf_counter() - begin
                print(f"{tool} {name}: {outcomes[f'{tool} {name}']} ({seconds:.0f} s)", flush=True)
    print("\n".join(f"{what}: {outcome.splitlines()[0]}" for what, outcome in outcomes.items()))
    raise SystemExit(any(outcome != "clean" for outcome in outcomes.values()))


def _sanitizer() -> str:
    places = [shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer"]
    found = next((place for place in places if place and Path(place).is_file()), None)
    if found is None:
        raise SystemExit("compute-sanitizer is not found: it comes with the CUDA toolkit; put its bin on PATH")
    return found


def _under(sanitizer: str | None, tool: str, what: str, work: Path) -> tuple[int, str]:
    """Exit status and output of a run, under a tool or without."""
    command = [sys.executable, "-m", "tests.support.sanitize", "--run", what, "--work", str(work)]
    if sanitizer is not None:
        # Libraries ask the driver for what it may not have, and are told so: no error of a kernel.
        quiet = ["--report-api-errors=no"] if tool == "memcheck" else []
        command = [sanitizer, "--tool", tool, f"--error-exitcode={_FOUND}", "--print-limit=20", *quiet, *command]
    environment = os.environ | {"JITLTO_CACHE_DIR": str(work / "cache")}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, timeout=_LIMIT, check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    except subprocess.TimeoutExpired:
        return -1, f"stopped after {_LIMIT} s"
    return done.returncode, done.stdout


if __name__ == "__main__":
    main()
