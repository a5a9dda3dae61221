"""``jitlto demo``: build, plan, link and, with a GPU, run the shipped family ``search``."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from jitlto.cli.parameters import FILE
from jitlto.cli.progress import progress
from jitlto.cuda import device, toolkit
from jitlto.errors import NoDeviceError
from jitlto.model.compatibility import can_link_for
from jitlto.model.versions import Architecture
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.planning.plan import Plan
from jitlto.storage import declaration
from jitlto.storage.database import FragmentDatabase

_CONFIGURATIONS: tuple[dict[str, str], ...] = (
    {"data_type": "float", "out_type": "float", "idx_type": "uint32_t", "optimized_name": "optimized", "veclen": "4",
     "distance_name": "euclidean", "filter_name": "filter_none"},
    {"data_type": "float", "out_type": "double", "idx_type": "int64_t", "optimized_name": "standard", "veclen": "8",
     "distance_name": "inner_product", "filter_name": "filter_bitset"},
    {"data_type": "__half", "out_type": "float", "idx_type": "uint32_t", "optimized_name": "optimized", "veclen": "4",
     "distance_name": "inner_product", "filter_name": "filter_none"},
    {"data_type": "__half", "out_type": "float", "idx_type": "int64_t", "optimized_name": "standard", "veclen": "16",
     "distance_name": "euclidean", "filter_name": "filter_bitset"},
)  # fmt: skip
_WITHOUT_DEVICE = "sm_90"
_ROWS, _QUERIES, _DIM = 20_000, 64, 96


@click.command(epilog="Example: jitlto demo")
@click.option("-o", "--output", type=FILE, help="Keep the database in this file.")
@click.option("--arch", help=f"Link for this architecture [default: the device's, or {_WITHOUT_DEVICE} without one].")
def demo(output: Path | None, arch: str | None) -> None:
    """Build the family `search`, plan and link some of its 96 kernels, and run them if there is a GPU.

    Exit status 0 if the build and every link succeed, no call between fragments is left, and the results are right.
    """
    target = None if arch is None else Architecture.parse(arch)
    if target is not None and not can_link_for(toolkit.nvjitlink_version(), target):
        raise click.UsageError(f"nvJitLink {toolkit.nvjitlink_version()} does not link for {target.sm}")
    with tempfile.TemporaryDirectory(prefix="jitlto-demo-") as directory:
        path = output or Path(directory) / "search.fragdb"
        _build(path)
        with FragmentDatabase(path) as database:
            search = KernelFamily("search", database)
            held = _run(search, None if target is None else target.sm)
    if not held:
        raise SystemExit(1)


def _build(path: Path) -> None:
    from jitlto.build.pipeline import build

    # Without the build cache: a demonstration shows a build, not the memory of one.
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
            device_arch, reason = None, "CuPy, which holds the arrays, is not installed"
    except NoDeviceError as error:
        device_arch, reason = None, error.what
    target = arch or device_arch or _WITHOUT_DEVICE
    # The first link loads the library, which is not to be measured.
    search.planner(**_CONFIGURATIONS[0]).plan(arch=target).link(use_cache=False)
    held = True
    for configuration in _CONFIGURATIONS:
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
            held &= _launch(search, plan, configuration)
    if device_arch != target:
        reason = reason or f"the device is {device_arch}, not {target}"
        click.echo(f"left out launching and checking the results: {reason}")
    return held


def _launch(search: KernelFamily, plan: Plan, configuration: dict[str, str]) -> bool:
    import cupy as cp

    rng = np.random.default_rng()
    types = {
        "float": np.float32,
        "__half": np.float16,
        "double": np.float64,
        "uint32_t": np.uint32,
        "int64_t": np.int64,
    }
    data_type = types[configuration["data_type"]]
    dataset = rng.standard_normal((_ROWS, _DIM)).astype(data_type)
    queries = rng.standard_normal((_QUERIES, _DIM)).astype(data_type)
    allowed = np.ones(_ROWS, bool)
    words = None
    if configuration["filter_name"] == "filter_bitset":
        allowed = rng.random(_ROWS) < 0.5
        words = cp.asarray(np.packbits(np.pad(allowed, (0, -_ROWS % 32)), bitorder="little").view(np.uint32))
    indices = cp.full(_QUERIES, 123, types[configuration["idx_type"]])
    distances = cp.full(_QUERIES, np.nan, types[configuration["out_type"]])
    launcher = search.load(plan)
    optimized = configuration["optimized_name"] == "optimized"
    grid, block = (_QUERIES, 256) if optimized else (-(-_QUERIES // 128), 128)
    device_dataset, device_queries = cp.asarray(dataset), cp.asarray(queries)
    stream = cp.cuda.get_current_stream()
    begin, end = cp.cuda.Event(), cp.cuda.Event()
    begin.record()
    launcher(stream.ptr, grid, block, device_dataset, device_queries, indices, distances, _ROWS, _QUERIES, _DIM, words)
    end.record()
    end.synchronize()
    held = _agrees(
        cp.asnumpy(indices), cp.asnumpy(distances), dataset, queries, allowed, configuration["distance_name"]
    )
    click.echo(
        f"         launched: {cp.cuda.get_elapsed_time(begin, end):.3f} ms, {_QUERIES} queries × {_ROWS:,} rows × "
        f"{_DIM}, "
        f"{'results agree with NumPy' if held else 'RESULTS DIFFER FROM NUMPY'}"
    )
    return held


def _agrees(
    indices: npt.NDArray[Any],
    distances: npt.NDArray[Any],
    dataset: npt.NDArray[Any],
    queries: npt.NDArray[Any],
    allowed: npt.NDArray[np.bool_],
    distance_name: str,
) -> bool:
    """Compare with float64: each row found must be as close as the closest, up to rounding in single precision."""
    rows, wanted = dataset.astype(np.float64), queries.astype(np.float64)
    products = wanted @ rows.T
    if distance_name == "euclidean":
        exact = (wanted**2).sum(1)[:, None] - 2 * products + (rows**2).sum(1)
    else:
        exact = -products
    exact[:, ~allowed] = np.inf
    found = exact[np.arange(len(indices)), indices.astype(np.int64)]
    # dim roundings of at most one unit in the last place of terms whose magnitudes add up to this.
    scale = _DIM * np.finfo(np.float32).eps * (np.abs(wanted) @ np.abs(rows).T).max() * 2
    return bool(np.all(np.abs(found - distances) <= scale) and np.all(found <= exact.min(1) + scale))
