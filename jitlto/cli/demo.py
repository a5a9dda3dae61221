"""``jitlto demo``: build, plan, link and, with a GPU, run the shipped family ``search``."""

from importlib.util import find_spec
from pathlib import Path

import click
import numpy as np

from jitlto.base.errors import NoDeviceError
from jitlto.base.files import temporary_directory
from jitlto.base.text import format_bytes, pluralize
from jitlto.build.pipeline import build
from jitlto.cli.database import print_tree
from jitlto.cli.output import progress
from jitlto.cuda import device
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.plan.plan import Plan
from jitlto.report.content import describe, size
from jitlto.runtime.family import KernelFamily

_ROWS, _QUERIES, _DIM = 20_000, 64, 96
_CONFIGURATION = {
    "data_type": "float", "out_type": "float", "idx_type": "uint32_t", "filter_name": "filter_none",
    "optimized_name": "optimized", "veclen": "4", "distance_name": "inner_product",
}  # fmt: skip


@click.command(epilog="Example: jitlto demo")
def demo() -> int:
    """Build the family `search`, plan and link one of its 96 kernels, and run it if there is a GPU.

    Exit status 0 if the build and the link succeed, no call between fragments is left, and results are correct.
    """
    with temporary_directory("jitlto-demo-") as directory:
        path = Path(directory) / "search.fragdb"
        with progress("compiling search") as observer:  # and no build cache, to show what a build takes
            report = build([declaration.load_family(declaration.find_family("search"))], path, observer=observer)
        with FragmentDatabase(path) as database:
            search, (described,) = KernelFamily("search", database), describe(database).families
            print_tree(described)
            kernels = [kernel.resolution.fragments for kernel in search.kernels()]
            together, apart = size(described.fragments), sum(map(size, kernels))
            click.echo(
                f"\nN + M: {pluralize(report.compiled, 'compile')} in {report.seconds:.1f} s, {format_bytes(together)}"
                f"\nN × M: {pluralize(len(kernels), 'compile')}, and {format_bytes(apart)} of the same code, "
                f"{apart / together:.1f} times as much\n"
            )
            done = _run(search)
    click.echo("\nnext: jitlto build search && jitlto ls search, and for a family of your own: jitlto new my-kernels")
    return int(not done)


def _run(search: KernelFamily) -> bool:
    reason = "" if find_spec("cupy") else "CuPy is not installed"
    try:
        device.current()
    except NoDeviceError as error:
        reason = error.what
    plan = search.planner(**_CONFIGURATION).plan(arch="sm_90" if reason else None)
    linked = plan.link(use_cache=False)
    left = plan.calls_left() if plan.link_mode == "lto" else ["(linked as PTX)"]
    click.echo("\n  ".join(("one kernel", *(f"{name:<14}  {value}" for name, value in _CONFIGURATION.items()))))
    took = f"{len(plan.fragments)} fragments, linked for {plan.target.sm} in {1000 * linked.seconds:.0f} ms"
    click.echo(f"{took}: {f'CALLS LEFT: {left}' if left else 'no call left'}")
    if reason:
        click.echo(f"the kernel was not launched: {reason}")
        return not left
    right = _launch(search, plan)
    click.echo(f"launched: {'results are right' if right else 'RESULTS ARE WRONG'}")
    return right and not left


def _launch(search: KernelFamily, plan: Plan) -> bool:
    """Launch a kernel on the current device with random numbers; return whether its results are correct."""
    import cupy as cp  # imported late: callers bring it

    rng = np.random.default_rng()
    dataset, queries = (rng.standard_normal((count, _DIM), np.float32) for count in (_ROWS, _QUERIES))
    indices, distances = cp.zeros(_QUERIES, np.uint32), cp.zeros(_QUERIES, np.float32)
    arguments = (cp.asarray(dataset), cp.asarray(queries), indices, distances, _ROWS, _QUERIES, _DIM, None)
    search.load(plan)(cp.cuda.get_current_stream(), _QUERIES, 256, *arguments)
    exact = -queries.astype(np.float64) @ dataset.astype(np.float64).T
    found = exact[np.arange(_QUERIES), indices.get()]
    return np.allclose(found, exact.min(1), atol=1e-3) and np.allclose(found, distances.get(), atol=1e-3)
