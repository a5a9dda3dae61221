"""``jitlto demo``: build, plan, link and, with a GPU, run the shipped family ``search``."""

from __future__ import annotations

import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import click

from jitlto.base.errors import NoDeviceError
from jitlto.base.files import temporary_directory
from jitlto.base.versions import Architecture
from jitlto.build.pipeline import build
from jitlto.cli.output import progress
from jitlto.cli.parameters import DATABASE_FILE, Target
from jitlto.cli.search_sample import CONFIGURATIONS, DIM, QUERIES, ROWS, launch_and_compare
from jitlto.cuda import device
from jitlto.database import FragmentDatabase
from jitlto.families import declaration
from jitlto.runtime.family import KernelFamily

_WITHOUT_DEVICE = "sm_90"


@click.command(epilog="Example: jitlto demo")
@click.option("-o", "--output", type=DATABASE_FILE, help="Keep the database in this file.")
@click.option(
    "--arch",
    type=Target(),
    help=f"Link for this architecture [default: the device's, or {_WITHOUT_DEVICE} without one].",
)
def demo(output: Path | None, arch: Architecture | None) -> None:
    """Build the family `search`, plan and link some of its 96 kernels, and run them if there is a GPU.

    Exit status 0 if the build and all links succeed, no call between fragments is left, and results are correct.
    """
    with temporary_directory("jitlto-demo-") as directory:
        path = output or Path(directory) / "search.fragdb"
        _build(path)
        with FragmentDatabase(path) as database:
            search = KernelFamily("search", database)
            held = _run(search, None if arch is None else arch.sm)
    if not held:
        raise SystemExit(1)


def _build(path: Path) -> None:
    # No build cache: the demo shows what a build takes.
    with progress("compiling search") as observer:
        report = build([declaration.load_family(declaration.find_family("search"))], path, observer=observer)
    groups = Counter(fragment.key.group for fragment in report.fragments)
    listed = ", ".join(f"{count} {name}" for name, count in sorted(groups.items()))
    click.echo(
        f"built    {len(report.fragments)} fragments ({listed}) in {report.seconds:.1f} s: "
        f"{path.stat().st_size:,} bytes"
    )


def _run(search: KernelFamily, arch: str | None) -> bool:
    device_arch: str | None = None
    try:
        device_arch, reason = device.architecture().sm, ""
        if find_spec("cupy") is None:
            device_arch, reason = None, "CuPy is not installed"
    except NoDeviceError as error:
        device_arch, reason = None, error.what
    target = arch or device_arch or _WITHOUT_DEVICE
    # Load nvJitLink before measuring.
    search.planner(**CONFIGURATIONS[0]).plan(arch=target).link(use_cache=False)
    held = True
    for configuration in CONFIGURATIONS:
        begin = time.perf_counter()
        plan = search.planner(**configuration).plan(arch=target)
        planned = time.perf_counter() - begin
        linked = plan.link(use_cache=False)
        left = plan.calls_left() if plan.link_mode == "lto" else ["(linked as PTX)"]
        held &= not left
        inlined = f"CALLS LEFT: {', '.join(left)}" if left else "no call left"
        click.echo(f"kernel   {', '.join(configuration.values())}")
        click.echo(
            f"         {len(plan.fragments)} fragments planned in {1000 * planned:.2f} ms, linked for "
            f"{plan.target.sm} in {1000 * linked.seconds:.0f} ms: {len(linked.cubin):,} bytes, {inlined}"
        )
        if device_arch == target:
            milliseconds, right = launch_and_compare(search, plan)
            held &= right
            state = "results agree with NumPy" if right else "RESULTS DIFFER FROM NUMPY"
            click.echo(f"         launched: {milliseconds:.3f} ms, {QUERIES} queries × {ROWS:,} rows × {DIM}, {state}")
    if device_arch != target:
        reason = reason or f"the device is {device_arch}, not {target}"
        click.echo(f"kernels were not launched: {reason}")
    return held
