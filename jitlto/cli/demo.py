"""``jitlto demo``: build, plan, link and, with a GPU, run the shipped family ``search``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import click
import numpy as np

from jitlto.base.errors import NoDeviceError
from jitlto.base.files import temporary_directory
from jitlto.base.text import pluralize
from jitlto.build.pipeline import build
from jitlto.cli.output import progress
from jitlto.cuda import device
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.plan.plan import Plan
from jitlto.runtime.family import KernelFamily

_ROWS, _QUERIES, _DIM = 20_000, 64, 96
_COMMON = {"data_type": "float", "out_type": "float", "idx_type": "uint32_t", "filter_name": "filter_none"}
_CONFIGURATIONS = (
    {"optimized_name": "optimized", "veclen": "4", "distance_name": "inner_product", **_COMMON},
    {"optimized_name": "standard", "veclen": "8", "distance_name": "inner_product", **_COMMON},
)


@click.command(epilog="Example: jitlto demo")
def demo() -> None:
    """Build the family `search`, plan and link some of its 96 kernels, and run them if there is a GPU.

    Exit status 0 if the build and all links succeed, no call between fragments is left, and results are correct.
    """
    with temporary_directory("jitlto-demo-") as directory:
        path = Path(directory) / "search.fragdb"
        with progress("compiling search") as observer:  # and no build cache, to show what a build takes
            report = build([declaration.load_family(declaration.find_family("search"))], path, observer=observer)
        size = f"{path.stat().st_size:,} bytes"
        click.echo(f"built    {pluralize(len(report.fragments), 'fragment')} in {report.seconds:.1f} s: {size}")
        with FragmentDatabase(path) as database:
            held = _run(KernelFamily("search", database))
    if not held:
        raise SystemExit(1)


def _run(search: KernelFamily) -> bool:
    reason = "" if find_spec("cupy") else "CuPy is not installed"
    try:
        device.current()
    except NoDeviceError as error:
        reason = error.what
    target, held = "sm_90" if reason else None, True
    search.planner(**_CONFIGURATIONS[0]).plan(arch=target).link(use_cache=False)  # which loads nvJitLink
    for configuration in _CONFIGURATIONS:
        begin = time.perf_counter()
        plan = search.planner(**configuration).plan(arch=target)
        planned = 1000 * (time.perf_counter() - begin)
        linked = plan.link(use_cache=False)
        left = plan.calls_left() if plan.link_mode == "lto" else ["(linked as PTX)"]
        inlined = f"CALLS LEFT: {', '.join(left)}" if left else "no call left"
        took = f"linked for {plan.target.sm} in {1000 * linked.seconds:.0f} ms"
        click.echo(f"kernel   {', '.join(configuration.values())}")
        click.echo(f"         {len(plan.fragments)} fragments planned in {planned:.2f} ms, {took}: {inlined}")
        right = bool(reason) or _launch(search, plan, configuration)
        held &= right and not left
        if not reason:
            click.echo(f"         launched: {'results are right' if right else 'RESULTS ARE WRONG'}")
    if reason:
        click.echo(f"kernels were not launched: {reason}")
    return held


def _launch(search: KernelFamily, plan: Plan, configuration: Mapping[str, str]) -> bool:
    """Launch a kernel on the current device with random numbers; return whether its results are correct."""
    import cupy as cp  # imported late: callers bring it

    rng = np.random.default_rng()
    dataset, queries = (rng.standard_normal((count, _DIM), np.float32) for count in (_ROWS, _QUERIES))
    indices, distances = cp.zeros(_QUERIES, np.uint32), cp.zeros(_QUERIES, np.float32)
    grid, block = (_QUERIES, 256) if configuration["optimized_name"] == "optimized" else (-(-_QUERIES // 128), 128)
    arguments = (cp.asarray(dataset), cp.asarray(queries), indices, distances, _ROWS, _QUERIES, _DIM, None)
    search.load(plan)(cp.cuda.get_current_stream(), grid, block, *arguments)
    exact = -queries.astype(np.float64) @ dataset.astype(np.float64).T
    found = exact[np.arange(_QUERIES), indices.get()]
    return np.allclose(found, exact.min(1), atol=1e-3) and np.allclose(found, distances.get(), atol=1e-3)
