"""Bytes to ship: a family's database against the cubins of all its kernels, each compiled whole.

The cubins are sampled: the list of a family's kernels, in the order of ``KernelFamily.configurations``, is divided into
parts of equal length, and of each one kernel is drawn, so that types and sizes occur as often as they do in the whole.
Each is compiled by NVRTC as one source for each architecture. What all would take is the mean times their number; the
standard error is that of a random sample, which this one is better than.
«Deflated» is by zlib, level 6, as in a wheel: the database as a whole, each
cubin by itself. The database's fragments are compiled for one base architecture, which links for all five; the other
database holds LTO-IR for each of the five. No GPU is needed.
"""

from __future__ import annotations

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
from jitlto.record.fragment import ImageKind
from jitlto.runtime.family import KernelFamily
from tests.benchmarks.families import svg
from tests.benchmarks.families.compile import compile_whole
from tests.benchmarks.families.databases import NAMES, whole_family
from tests.benchmarks.families.part import Options, Outcome, say, survive, table

_ARCHITECTURES = tuple(map(Architecture, (75, 80, 90, 100, 120)))
_ONE = Architecture(90)


def run(options: Options) -> Outcome:
    """All families."""
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    for name in NAMES:
        with survive(name, failures):
            rows.append(_measure(name, options))
    return Outcome(
        {"how": __doc__, "architectures": [a.sm for a in _ARCHITECTURES], "one": _ONE.sm, "families": rows},
        _text(rows),
        {"": _plot(rows)} if rows else {},
        failures,
    )


def _measure(name: str, options: Options) -> dict[str, Any]:
    path = whole_family(name, options.work)
    say(f"{name}: built for one base")
    five = whole_family(name, options.work, _ARCHITECTURES) if not options.small else None
    with FragmentDatabase(path) as database:
        configurations = list(KernelFamily(name, database).configurations())
        fragments = database.fragments(name)
    count, draw = 2 if options.small else 48, random.SystemRandom().random
    chosen = [configurations[int((n + draw()) * len(configurations) / count)] for n in range(count)]
    say(
        f"{name}: {len(configurations)} kernels, {len(chosen)} of them compiled for {len(_ARCHITECTURES)} architectures"
    )
    jobs = max(1, len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        work = [(str(path), name, configuration, str(a)) for configuration in chosen for a in _ARCHITECTURES]
        sizes = list(pool.map(_cubin_sizes, work))
    of_all = [sizes[n : n + len(_ARCHITECTURES)] for n in range(0, len(sizes), len(_ARCHITECTURES))]
    place = _ARCHITECTURES.index(_ONE)
    images = {kind.value: sum(i.size for f in fragments for i in f.images_of(kind)) for kind in ImageKind}
    row = {
        "family": name,
        "fragments": len(fragments),
        "kernels": len(configurations),
        "sampled": len(chosen),
        "database": _file(path),
        "database_of_five": _file(five) if five else None,
        "image_bytes": images,
        "cubins_one": _scaled([each[place] for each in of_all], len(configurations)),
        "cubins_five": _scaled([(sum(s for s, _ in each), sum(d for _, d in each)) for each in of_all],
                               len(configurations)),
    }  # fmt: skip
    row["cubins_one/database"] = round(row["cubins_one"]["bytes"] / row["database"]["bytes"], 1)
    row["cubins_five/database"] = round(row["cubins_five"]["bytes"] / row["database"]["bytes"], 1)
    for many in ("one", "five"):
        deflated = row[f"cubins_{many}"]["deflated"] / row["database"]["deflated"]
        row[f"cubins_{many}/database, deflated"] = round(deflated, 1)
    say(f"{name}: database {row['database']['bytes']:,}, cubins {row['cubins_one']['bytes']:,} for one architecture, "
        f"{row['cubins_five']['bytes']:,} for five")  # fmt: skip
    return row


def _cubin_sizes(work: tuple[str, str, dict[str, str], str]) -> tuple[int, int]:
    """Bytes of one kernel compiled whole, as they are and deflated."""
    path, name, configuration, architecture = work
    target = Architecture.parse(architecture)
    with FragmentDatabase(Path(path)) as database:
        plan = KernelFamily(name, database).plan(arch=target, **configuration)
        cubin = compile_whole(plan, target, target)
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


def _text(rows: list[dict[str, Any]]) -> str:
    return table(
        ("megabytes", "fragments", "kernels", "database", "database of five", "cubins, one", "cubins, five",
         "ratio, one", "ratio, five", "deflated, one", "deflated, five"),
        [
            (r["family"], r["fragments"], r["kernels"], r["database"]["bytes"] / 1e6,
             r["database_of_five"]["bytes"] / 1e6 if r["database_of_five"] else None,
             r["cubins_one"]["bytes"] / 1e6, r["cubins_five"]["bytes"] / 1e6, r["cubins_one/database"],
             r["cubins_five/database"], r["cubins_one/database, deflated"], r["cubins_five/database, deflated"])
            for r in rows
        ],
    )  # fmt: skip


def _plot(rows: list[dict[str, Any]]) -> str:
    series = [
        "database, one base for all",
        "database, LTO-IR for five",
        "cubins for one architecture",
        "cubins for five",
    ]

    def value(entry: dict[str, Any] | None) -> svg.Value | None:
        if entry is None:
            return None
        size, error = entry["bytes"] / 1e6, entry.get("standard_error", 0) / 1e6
        return svg.Value(size, size - error, size + error)

    groups = [
        svg.Group(f"{r['family']}, {r['kernels']:,} kernels",
                  [value(r[what]) for what in ("database", "database_of_five", "cubins_one", "cubins_five")])
        for r in rows
    ]  # fmt: skip
    return svg.bars("Bytes to ship", series, groups, "megabytes, logarithmic; lines: standard errors of samples",
                    logarithmic=True)  # fmt: skip
