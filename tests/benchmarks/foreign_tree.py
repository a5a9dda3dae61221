"""An imported library against raw nvcc: CPU time for the same images of the same sources, and a build without work.

python -m tests.benchmarks.foreign_tree --output docs/benchmarks/foreign_tree.json

Needs nvcc and CMake. The library is the one of `tests/support/foreign_tree`, in the style of RAPIDS cuVS. Rounds are
interleaved: each measures both sides once. CPU time is that of all processes, user and system.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jitlto.build.templates import render_family
from jitlto.storage import declaration
from tests.benchmarks.machine import command_line, describe
from tests.support.foreign import TREE
from tests.support.process import ROOT

FAMILIES = ("brute_force", "cluster", "ivf")
IMAGES = {"ltoir": "lto_75", "ltoir and ptx": "[lto_75,compute_75]"}


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--nvcc", default=shutil.which("nvcc"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES, help="they bring `common` along")
    parser.add_argument("--only", choices=["nvcc", "noop"])
    options = parser.parse_args()
    if options.nvcc is None:
        raise SystemExit("there is no nvcc: give --nvcc PATH")
    result: dict[str, object] = {"machine": describe(command_line()), "rounds": options.rounds}
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        _jitlto("import", "cmake", str(TREE / "CMakeLists.txt"), "-o", str(place))
        paths = [place / name / "family.toml" for name in options.families]
        if options.only in (None, "nvcc"):
            result["cpu"] = {images: _cpu(paths, place, images, options) for images in IMAGES}
        if options.only in (None, "noop"):
            result["no_op"] = _no_op(paths, place, options.rounds)
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def _cpu(paths: list[Path], place: Path, images: str, options: argparse.Namespace) -> dict[str, object]:
    kinds = json.dumps(images.split(" and "))
    for path in place.glob("*/family.toml"):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("images")]
        path.write_text("\n".join(lines).replace("[family]\n", f"[family]\nimages = {kinds}\n") + "\n")
    commands = _nvcc_commands(paths, place / "sources", options.nvcc, IMAGES[images])
    build = ("build", *map(str, paths), "-o", str(place / "out.fragdb"), "--no-cache", "--quiet")
    cpu: dict[str, list[float]] = {"jitlto": [], "nvcc": []}
    for _ in range(options.rounds):
        begin = _used()
        _jitlto(*build)
        cpu["jitlto"].append(_used() - begin)
        begin = _used()
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            list(threads.map(lambda command: subprocess.run(command, check=True, capture_output=True), commands))
        cpu["nvcc"].append(_used() - begin)
    ratios = [one / other for one, other in zip(cpu["jitlto"], cpu["nvcc"], strict=True)]
    figures: dict[str, object] = {
        "fragments": len(commands),
        **{f"{name}_seconds": [round(seconds, 2) for seconds in several] for name, several in cpu.items()},
        "median_ratio": round(statistics.median(ratios), 2),
    }
    print(f"{images}: {figures}", flush=True)
    return figures


def _nvcc_commands(paths: list[Path], place: Path, nvcc: str, code: str) -> list[list[str]]:
    """One command for each source, with the options of its group."""
    families = {f.name: f for path in paths for top in [declaration.load_family(path)]
                for f in (top, *top.all_used().values())}  # fmt: skip
    commands = []
    for family in families.values():
        include = [f"-I{directory}" for directory in family.include]
        for number, rendered in enumerate(render_family(family)):
            path = place / family.name / f"{rendered.group.name}{number}.cu"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(rendered.source)
            fixed = [nvcc, "-rdc=true", "-fatbin", "-gencode", f"arch=compute_75,code={code}"]
            own = family.compiler_options(rendered.group)
            commands.append([*fixed, *own, *include, str(path), "-o", str(path.with_suffix(".fatbin"))])
    return commands


def _no_op(paths: list[Path], place: Path, rounds: int) -> dict[str, object]:
    """A whole command that finds all in the build cache."""
    build = ("build", *map(str, paths), "-o", str(place / "out.fragdb"), "--cache-dir", str(place / "cache"), "--quiet")
    _jitlto(*build)
    seconds = []
    for _ in range(max(5, rounds)):
        begin = time.perf_counter()
        _jitlto(*build)
        seconds.append(round(time.perf_counter() - begin, 3))
    figures: dict[str, object] = {"seconds": seconds, "median": statistics.median(seconds)}
    print(f"no work: {figures}", flush=True)
    return figures


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _jitlto(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "jitlto", *arguments], check=True, capture_output=True, cwd=ROOT)


if __name__ == "__main__":
    main()
