"""A library imported by one command: its builds by nvcc and by NVRTC, their CPU time against raw nvcc's for the same
images of the same sources, the proof that every kernel links, and a build without work.

python -m tests.benchmarks.foreign_tree --output docs/benchmarks/foreign_tree.json

Needs nvcc and CMake. The library is the one of `tests/support/foreign_tree`, in the style of RAPIDS cuVS. CPU time is
that of all processes, user and system, and measured for each family in turn, without the comparison for later
architectures, which nvcc does not make either. All parts take ten minutes on two cores.
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jitlto.families import declaration
from jitlto.families.templates import render_family
from tests.benchmarks.machine import command_line, describe
from tests.support.foreign import TREE, for_nvrtc
from tests.support.process import ROOT

FAMILIES = ("brute_force", "cluster", "ivf")
IMAGES = {"ltoir": "lto_75", "ltoir and ptx": "[lto_75,compute_75]"}
PARTS = ("processor_time", "linked", "no_op")
BUILD = ("build", "--quiet")


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--nvcc", default=shutil.which("nvcc"))
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES, help="they bring `common` along")
    parser.add_argument("--only", choices=PARTS, help="measure this part of --output again")
    options = parser.parse_args()
    if options.nvcc is None:
        raise SystemExit("there is no nvcc: give --nvcc PATH")
    result: dict[str, Any] = describe(command_line())
    if options.only and options.output and options.output.exists():
        result = json.loads(options.output.read_text())
    with tempfile.TemporaryDirectory() as directory:
        paths = {tool: _imported(Path(directory) / tool, options.families) for tool in ("nvcc", "nvrtc")}
        for_nvrtc(Path(directory) / "nvrtc")
        for part in [options.only] if options.only else PARTS:
            result[part] = globals()[f"_{part}"](paths, Path(directory), options)
            print(f"{part}: {json.dumps(result[part], indent=1)}", flush=True)
            if options.output:
                options.output.write_text(json.dumps(result, indent=1) + "\n")


def _imported(place: Path, families: list[str]) -> list[Path]:
    _jitlto("import", "cmake", str(TREE / "CMakeLists.txt"), "-o", str(place))
    return [place / name / "family.toml" for name in families]


def _processor_time(paths: dict[str, list[Path]], place: Path, options: argparse.Namespace) -> dict[str, Any]:
    """CPU seconds of each family with the groups that it uses: the compiler alone, and jitlto with both toolchains."""
    result: dict[str, Any] = {}
    for images, code in IMAGES.items():
        for path in place.glob("nv*/*/family.toml"):
            lines = [line for line in path.read_text().splitlines() if not line.startswith("images")]
            kinds = f"[family]\nimages = {json.dumps(images.split(' and '))}\n"
            path.write_text("\n".join(lines).replace("[family]\n", kinds) + "\n")
        result[images] = {}
        for path, same in zip(paths["nvcc"], paths["nvrtc"], strict=True):
            commands = _nvcc_commands(path, place / "sources", options.nvcc, code)
            build = (*BUILD, "--no-cache", "-o", str(place / "out.fragdb"))
            seconds = {
                "nvcc alone": _used(_run, commands),
                "jitlto, nvcc": _used(_jitlto, *build, str(path)),
                "jitlto, nvrtc": _used(_jitlto, *build, str(same)),
            }
            ratio = seconds["jitlto, nvcc"] / seconds["nvcc alone"]
            result[images][path.parent.name] = {
                "fragments": len(commands),
                **{name: round(used, 1) for name, used in seconds.items()},
                "jitlto / nvcc": round(ratio, 3),
            }
    return result


def _no_op(paths: dict[str, list[Path]], place: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A whole command that finds all in the build cache."""
    build = (*BUILD, *map(str, paths["nvcc"]), "-o", str(place / "out.fragdb"))
    os.environ["JITLTO_CACHE_DIR"] = str(place / "cache of nvcc")
    _jitlto(*build)
    wall, cpu = [], []
    for _ in range(11):
        begin = time.perf_counter()
        cpu.append(round(_used(_jitlto, *build), 3))
        wall.append(round(time.perf_counter() - begin, 3))
    return {
        "seconds": wall, "median": statistics.median(wall), "least": min(wall),
        "cpu seconds": cpu, "load average": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def _nvcc_commands(path: Path, place: Path, nvcc: str, code: str) -> list[list[str]]:
    """One command for each source, with the options of its group."""
    top = declaration.load_family(path)
    commands = []
    for family in (top, *top.all_used().values()):
        include = [f"-I{directory}" for directory in family.include]
        for number, rendered in enumerate(render_family(family)):
            source = place / family.name / f"{rendered.group.name}{number}.cu"
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(rendered.source)
            fixed = [nvcc, "-rdc=true", "-fatbin", "-gencode", f"arch=compute_75,code={code}"]
            own = family.compiler_options(rendered.group)
            commands.append([*fixed, *own, *include, str(source), "-o", str(source.with_suffix(".fatbin"))])
    return commands


def _run(commands: list[list[str]]) -> None:
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        list(threads.map(lambda command: subprocess.run(command, check=True, capture_output=True), commands))


def _used(run: Callable[..., object], *arguments: Any) -> float:
    """The CPU seconds of the processes that ``run`` starts and waits for."""
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(*arguments)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime


def _jitlto(*arguments: str, cache: Path | None = None) -> bytes:
    command = [sys.executable, "-m", "jitlto", *arguments]
    environment = os.environ | ({"JITLTO_CACHE_DIR": str(cache)} if cache else {})
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT, env=environment).stdout


if __name__ == "__main__":
    main()
