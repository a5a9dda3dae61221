"""``jitlto demo``: build, plan, link and, with a GPU, run the shipped family ``search``."""

from __future__ import annotations

import time
from collections.abc import Mapping
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
_COMMON = {"out_type": "float", "idx_type": "uint32_t", "filter_name": "filter_none"}
_CONFIGURATIONS: tuple[dict[str, str], ...] = (
    {"data_type": "float", "optimized_name": "optimized", "veclen": "4", "distance_name": "euclidean", **_COMMON},
    {"data_type": "float", "optimized_name": "standard", "veclen": "8", "distance_name": "inner_product", **_COMMON},
    {"data_type": "__half", "optimized_name": "optimized", "veclen": "4", "distance_name": "inner_product", **_COMMON},
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
    reason = ""
    try:
        device.current()
        import cupy  # noqa: F401 - imported late: callers bring it
    except (NoDeviceError, ImportError) as error:
        reason = error.what if isinstance(error, NoDeviceError) else "CuPy is not installed"
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
            click.echo(f"         launched: {'results agree with NumPy' if right else 'RESULTS DIFFER FROM NUMPY'}")
    if reason:
        click.echo(f"kernels were not launched: {reason}")
    return held


def _launch(search: KernelFamily, plan: Plan, configuration: Mapping[str, str]) -> bool:
    """Launch a kernel on the current device with random numbers; return whether its results are correct."""
    import cupy as cp  # imported late: callers bring it

    rng, dtype = np.random.default_rng(), np.float16 if configuration["data_type"] == "__half" else np.float32
    dataset, queries = (rng.standard_normal((count, _DIM)).astype(dtype) for count in (_ROWS, _QUERIES))
    indices, distances = cp.zeros(_QUERIES, np.uint32), cp.zeros(_QUERIES, np.float32)
    grid, block = (_QUERIES, 256) if configuration["optimized_name"] == "optimized" else (-(-_QUERIES // 128), 128)
    arguments = (cp.asarray(dataset), cp.asarray(queries), indices, distances, _ROWS, _QUERIES, _DIM, None)
    search.load(plan)(cp.cuda.get_current_stream().ptr, grid, block, *arguments)
    rows, wanted = dataset.astype(np.float64), queries.astype(np.float64)
    exact = -wanted @ rows.T
    if configuration["distance_name"] == "euclidean":
        exact = (wanted**2).sum(1)[:, None] + 2 * exact + (rows**2).sum(1)
    found = exact[np.arange(_QUERIES), cp.asnumpy(indices)]
    # Each row found must be as near as the nearest, up to _DIM roundings of sums of this magnitude.
    scale = 2 * _DIM * np.finfo(np.float32).eps * (np.abs(wanted) @ np.abs(rows).T).max()
    agrees = np.abs(found - cp.asnumpy(distances)) <= scale
    return bool(agrees.all() and (found <= exact.min(1) + scale).all())
