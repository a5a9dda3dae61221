"""What a first plan costs against the number of fragments, and what it answers from a damaged database.

Synthetic families of one group of kernels and one of functions, half of the fragments each, with three parameters.
Fresh processes in turn open a database, plan a kernel and compute its digest, with nothing cached; what is imported for
that is imported before. Damage: bytes are changed one after the other, half of them in the rows that the plan reads.

python -m tests.benchmarks.database_scale --sizes 32 1000 10000 100000 --runs 15 --damage 10000
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

from jitlto.base.errors import JitltoError
from jitlto.base.versions import Architecture, Version
from jitlto.cuda import nvjitlink
from jitlto.database import FragmentDatabase, writer
from jitlto.record.family_record import FamilyRecord, GroupRecord
from jitlto.record.fragment import Fragment, FragmentKey, Image, ImageKind, Parameter, Role, Symbol, SymbolKind
from jitlto.record.options import LinkOptions
from jitlto.runtime.family import KernelFamily
from tests.benchmarks.families import svg
from tests.benchmarks.machine import command_line, describe

_NAMES = ("data_type", "metric", "shape")
_PLAN = """
import json, resource, sys, time
from jitlto import load
from jitlto.cuda import nvjitlink
from jitlto.plan import resolve
from jitlto.link import requests
from jitlto.plan import planner
from jitlto import database
nvjitlink.version()
def memory():
    return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
before, begin, cpu = memory(), time.perf_counter(), time.process_time()
family = load("family", sys.argv[1])
digest = family.plan(arch="sm_90", **json.loads(sys.argv[2])).digest
seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
print(json.dumps([1000 * seconds, 1000 * cpu, (memory() - before) / 1024, digest]))
"""


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 1000, 10_000])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--damage", type=int, default=1000)
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": describe(command_line()), "sqlite": sqlite3.sqlite_version}
    with tempfile.TemporaryDirectory() as directory:
        paths = {size: Path(directory) / f"{size}.fragdb" for size in options.sizes}
        written = {size: write_family(path, size) for size, path in paths.items()}
        planned: dict[int, list[list[float]]] = {size: [] for size in paths}
        for _ in range(options.runs + 1):
            for size, path in paths.items():
                planned[size].append(_plan(path, size, Path(directory)))
        result["load"] = os.getloadavg()
        result["sizes"] = {
            size: written[size] | _summarize(planned[size][1:], planned[min(paths)][1:]) for size in paths
        }
        if options.damage:
            path = Path(directory) / "damaged.fragdb"
            write_family(path, 1000)
            result["damage"] = damage(path, 1000, options.damage)
    print(json.dumps(result, indent=1))
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")
        options.output.with_suffix(".svg").write_text(_plot(result["sizes"]), "utf-8")


def _plot(sizes: dict[int, dict[str, Any]]) -> str:
    names = ("open, plan and digest, ms", "the same, CPU ms")
    values = [[svg.Value.of(figures[name]) for figures in sizes.values()] for name in names]
    title = "A first plan against the number of fragments"
    return svg.lines(title, ["clock", "processor"], [f"{size:,}" for size in sizes], values, "milliseconds; quartiles")


def _keys(size: int, group: str) -> Iterator[FragmentKey]:
    steps = next(n for n in range(1, size + 1) if n**3 >= size)
    every = product(*([f"{name}_{n}" for n in range(steps)] for name in _NAMES))
    for values in islice(every, size):
        yield FragmentKey.make("family", group, dict(zip(_NAMES, values, strict=True)))


def _configuration(size: int) -> dict[str, str]:
    """The parameters of a kernel in the middle of the family."""
    return dict(next(islice(_keys(size // 2, "kernel"), size // 4, None)).parameters)


def _fragment(key: FragmentKey, role: Role, images: dict[str, bytes]) -> Fragment:
    data = key.text.encode()
    sha = hashlib.sha256(data).hexdigest()
    images[sha] = data
    function = Symbol(f"_ZN6family2opE{key.parameters[0][1]}", SymbolKind.FUNCTION, "(4)(4,4)")
    kernel = Symbol(f"_ZN6family6kernelE{len(images)}", SymbolKind.KERNEL, "()(8,8,4)")
    image = Image(ImageKind.LTOIR, Architecture(75), sha, len(data), "nvrtc", Version(nvjitlink.version().major, 0))
    if role is Role.DEVICE:
        return Fragment(key, role, "", (), (function,), (), (image,))
    parameters = tuple(Parameter(f"p{n}", "float const*", 8, 8) for n in range(4))
    return Fragment(key, role, kernel.name, parameters, (kernel,), (function,), (image,))


def make_family(size: int) -> tuple[FamilyRecord, Iterator[Fragment], dict[str, bytes]]:
    """Make a family of so many fragments: its record, these, and their images, which are there when they are."""
    groups = (
        GroupRecord("kernel", Role.ENTRYPOINT, _NAMES, None, False),
        GroupRecord("op", Role.DEVICE, _NAMES, "op.cuh", False),
    )
    header = ("op.cuh", "#pragma once\n" + "// an interface\n" * 50)
    record = FamilyRecord("family", (), LinkOptions(), (Architecture(75),), groups, (header,))
    images: dict[str, bytes] = {}
    roles = (("kernel", Role.ENTRYPOINT), ("op", Role.DEVICE))
    return record, (_fragment(k, role, images) for group, role in roles for k in _keys(size // 2, group)), images


def write_family(path: Path, size: int) -> dict[str, Any]:
    """Write a database of one family with so many fragments; return what it took."""
    record, fragments, images = make_family(size)
    begin = time.perf_counter()
    writer.write(path, [record], fragments, images)
    return {"write, s": round(time.perf_counter() - begin, 2), "file, MB": round(path.stat().st_size / 1e6, 2)}


def _plan(path: Path, size: int, directory: Path) -> list[float]:
    command = [sys.executable, "-c", _PLAN, str(path), json.dumps(_configuration(size))]
    environment = os.environ | {"JITLTO_CACHE_DIR": str(directory / "none"), "JITLTO_CACHE": "off"}
    done = subprocess.run(command, check=True, capture_output=True, env=environment, cwd=Path.cwd())
    *figures, _ = json.loads(done.stdout)
    return figures


def _summarize(runs: list[list[float]], smallest: list[list[float]]) -> dict[str, Any]:
    names = ("open, plan and digest, ms", "the same, CPU ms", "memory, MB")
    columns = dict(zip(names, zip(*runs, strict=True), strict=True))
    base = dict(zip(names, zip(*smallest, strict=True), strict=True))
    return {
        name: {
            "least": round(min(values), 2),
            "median": round(statistics.median(values), 2),
            "quartiles": [round(end, 2) for end in statistics.quantiles(values, n=4)[::2]],
            "median beyond the smallest": round(statistics.median(values) - statistics.median(base[name]), 2),
        }
        for name, values in columns.items()
    }


def damage(path: Path, size: int, places: int) -> dict[str, int]:
    """Change one byte after the other; count what plans answered. Another answer is an error.

    Args:
        path: A database of :func:`write_family`, which is whole again afterwards.
        size: Its number of fragments.
        places: How many bytes; half of them in rows that the plan reads.
    """
    configuration = _configuration(size)
    expected, touched = _answer(path, configuration)
    data, chance = path.read_bytes(), random.Random(16)  # noqa: S311 - the same places every time
    ranges = [
        (at, at + len(piece))
        for text in touched
        for start in range(0, len(text), 64)
        if (piece := text[start : start + 64]) and (at := data.find(piece)) == data.rfind(piece) != -1
    ]
    outcome: Counter[str] = Counter()
    with path.open("r+b", buffering=0) as file:
        for number in range(places):
            begin, end = chance.choice(ranges) if number % 2 else (0, len(data))
            at = chance.randrange(begin, end)
            file.seek(at)
            file.write(bytes([data[at] ^ 1 << chance.randrange(8)]))
            where = "in rows that the plan reads" if number % 2 else "anywhere"
            try:
                found, _ = _answer(path, configuration)
                if found != expected:
                    raise SystemExit(f"another answer after byte {at} changed: {found}")
                outcome[f"{where}: identical"] += 1
            except JitltoError as error:
                if str(path) not in str(error):
                    raise
                outcome[f"{where}: {type(error).__name__}"] += 1
            file.seek(at)
            file.write(data[at : at + 1])
    return dict(sorted(outcome.items()))


def _answer(path: Path, configuration: dict[str, str]) -> tuple[object, list[bytes]]:
    """Plan; return the digest and what it depends on, with the texts that were read of the database."""
    touched: list[bytes] = []
    with FragmentDatabase(path) as database:
        find = database._reader.find

        def recorded(*arguments: Any) -> tuple[Any, ...] | None:
            row = find(*arguments)
            touched.extend(value for value in row or () if isinstance(value, bytes))
            return row

        database._reader.find = recorded  # type: ignore[method-assign]
        family = KernelFamily("family", database)
        plan = family.plan(arch="sm_90", **configuration)
        answer = (plan.digest, plan.as_dict(), family.record, family.parameters, plan.link_key)
    return answer, touched


if __name__ == "__main__":
    main()
