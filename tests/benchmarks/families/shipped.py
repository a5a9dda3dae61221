"""Bytes to ship: a family's database against the cubins of all its kernels, each compiled whole.

The cubins are sampled: the list of a family's kernels, in the order of ``KernelFamily.configurations``, is divided into
parts of equal length, and of each one kernel is drawn, so that types and sizes occur as often as they do in the whole.
Each is compiled by NVRTC as one source for each architecture. What all would take is the mean times their number; the
standard error is that of a random sample, which this one is better than.
«Deflated» is by zlib, level 6, as in a wheel: the database as a whole, each
cubin by itself. The database's fragments are compiled for one base architecture, which links for all five. No GPU
is needed.
"""

import math
import multiprocessing
import os
import random
import statistics
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from jitlto.base.versions import Architecture
from jitlto.database import FragmentDatabase
from jitlto.runtime.family import KernelFamily
from tests.benchmarks import svg
from tests.benchmarks.families.compile import compile_whole
from tests.benchmarks.families.databases import NAMES, whole_family
from tests.benchmarks.script import Options, Result

_ARCHITECTURES = tuple(map(Architecture, (75, 80, 90, 100, 120)))
_ONE = Architecture(90)


def measure(options: Options) -> Result:
    """All families."""
    rows = [_measure(name, options) for name in NAMES]
    return {"how": __doc__, "architectures": [a.sm for a in _ARCHITECTURES], "one": _ONE.sm, "families": rows}


def _measure(name: str, options: Options) -> dict[str, Any]:
    path = whole_family(name, options.work)
    with FragmentDatabase(path) as database:
        configurations = list(KernelFamily(name, database).configurations())
        fragments = database.fragments(name)
    count, draw = 2 if options.small else 48, random.SystemRandom().random
    chosen = [configurations[int((n + draw()) * len(configurations) / count)] for n in range(count)]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn")) as pool:
        work = [(str(path), name, configuration, str(a)) for configuration in chosen for a in _ARCHITECTURES]
        sizes = list(pool.map(_cubin_sizes, work))
    of_all = [sizes[n : n + len(_ARCHITECTURES)] for n in range(0, len(sizes), len(_ARCHITECTURES))]
    one = [each[_ARCHITECTURES.index(_ONE)] for each in of_all]
    five = [(sum(s for s, _ in each), sum(d for _, d in each)) for each in of_all]
    return {
        "family": name,
        "fragments": len(fragments),
        "kernels": len(configurations),
        "sampled": len(chosen),
        "database": _file(path),
        "cubins_one": _scaled(one, len(configurations)),
        "cubins_five": _scaled(five, len(configurations)),
    }


def _cubin_sizes(work: tuple[str, str, dict[str, str], str]) -> tuple[int, int]:
    """Bytes of one kernel compiled whole, as they are and deflated."""
    path, name, configuration, architecture = work
    target = Architecture.parse(architecture)
    with FragmentDatabase(Path(path)) as database:
        plan = KernelFamily(name, database).plan(arch=target, **configuration)
        cubin = compile_whole(plan, target)
    return len(cubin), len(zlib.compress(cubin, 6))


def _file(path: Path) -> dict[str, int]:
    data = path.read_bytes()
    return {"bytes": len(data), "deflated": len(zlib.compress(data, 6))}


def _scaled(sample: Sequence[tuple[int, int]], count: int) -> dict[str, Any]:
    """What all kernels would take, from a sample's sizes, plain and deflated."""
    plain, deflated = [size for size, _ in sample], [size for _, size in sample]
    error = statistics.stdev(plain) / math.sqrt(len(plain)) if len(plain) > 1 else 0.0
    return {
        "bytes": round(count * statistics.mean(plain)),
        "standard_error": round(count * error),
        "deflated": round(count * statistics.mean(deflated)),
        "mean_cubin": round(statistics.mean(plain)),
    }


def plots(result: Result) -> dict[str, str]:
    series = {
        "database": "database, one base for all", "cubins_one": "cubins for one architecture",
        "cubins_five": "cubins for five",
    }  # fmt: skip

    def value(entry: dict[str, Any]) -> svg.Value:
        size, error = entry["bytes"] / 1e6, entry.get("standard_error", 0) / 1e6
        return svg.Value(size, size - error, size + error)

    groups = [
        svg.Group(f"{row['family']}, {row['kernels']:,} kernels", [value(row[what]) for what in series])
        for row in result["families"]
    ]
    unit = "megabytes, logarithmic; lines: standard errors of samples"
    return {"": svg.bars("Bytes to ship", list(series.values()), groups, unit, logarithmic=True)}
