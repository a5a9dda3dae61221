"""The build engine against one nvcc process a fragment, on the same cores and the same sources; and what it saves.

python -m tests.benchmarks.build_engine --output docs/benchmarks/build_engine.json

Needs an nvcc (--nvcc, or on PATH); one of NVRTC's own release makes the fairest peer. Rounds are interleaved: each
measures every side once. Both sides make the same images: LTO-IR alone, then LTO-IR and PTX. `--only nvcc` compares the
processor time of families with `toolchain = "nvcc"` with that of nvcc itself, on the same sources.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jitlto.compile.nvcc import Compiler
from jitlto.families import declaration
from jitlto.families.templates import render_family
from tests.benchmarks.machine import command_line, describe
from tests.support.families import write_family
from tests.support.process import ROOT

HEAVY = Path(__file__).with_name("heavy")

# Images of a build, and nvcc's name of them.
_IMAGES = (("ltoir", "lto_75"), ("ltoir and ptx", "[lto_75,compute_75]"))


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--nvcc", default=shutil.which("nvcc"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--copies", type=int, default=4, help="how many times the light family is built, under names")
    parser.add_argument("--heavy-copies", type=int, default=1, help="how many times the heavy family is built")
    parser.add_argument("--one-job", action="store_true", help="build each with one worker too")
    parser.add_argument(
        "--images", choices=[images for images, _ in _IMAGES], help="of the comparisons; by default all"
    )
    parts = ["light", "heavy", "nvcc", "shipped", "noop"]
    parser.add_argument("--only", choices=parts)
    parser.add_argument("--fragments", type=int, default=341, help="of the build without work")
    options = parser.parse_args()
    if options.nvcc is None and options.only in (None, "light", "heavy", "nvcc"):
        raise SystemExit("there is no nvcc: give --nvcc PATH")
    compileall.compile_dir(ROOT / "jitlto", quiet=1)  # as pip leaves a package that it installs
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: options.cores]))

    result: dict[str, object] = {
        "machine": describe(command_line()),
        "cores": options.cores,
        "rounds": options.rounds,
    }
    if options.nvcc is not None:
        result["peer"] = " ".join(_nvcc_command(options.nvcc, "lto_75")[1:])
        result["peer_version"] = _nvcc_version(options.nvcc)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        if options.only in (None, "light"):
            families = [copy_of_search(place / f"light{n}", n) for n in range(options.copies)]
            result["light"] = _against_nvcc("light", families, place, options)
        if options.only in (None, "heavy"):
            families = [_copy_of_heavy(place / f"heavy{n}", n) for n in range(options.heavy_copies)]
            result["heavy"] = _against_nvcc("heavy", families, place, options)
        if options.only in (None, "nvcc"):
            shutil.copytree(HEAVY, place / "heavy_nvcc")
            families = {
                "light": [copy_of_search(place / f"nvcc{n}", n) for n in range(options.copies)],
                "heavy": [place / "heavy_nvcc"],
            }
            result["nvcc_toolchain"] = {
                name: _beside_nvcc(name, each, place, options) for name, each in families.items()
            }
        if options.only in (None, "shipped"):
            seconds = [_jitlto([declaration.find_family("ivf_flat")], place) for _ in range(max(5, options.rounds))]
            result["ivf_flat"] = {"seconds": [round(t, 2) for t in seconds], "least": round(min(seconds), 2)}
            print(f"ivf_flat: {result['ivf_flat']}", flush=True)
        if options.only in (None, "noop"):
            result["no_op"] = _no_op(place, options.rounds, options.fragments)
    result["load average"] = [round(each, 1) for each in os.getloadavg()]
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def copy_of_search(directory: Path, number: int) -> Path:
    """The shipped family `search` under another name, with sources of its own: equal ones would be compiled once."""
    shutil.copytree(ROOT / "fragments" / "search", directory)
    shutil.copytree(ROOT / "matrices" / "search", directory / "search")
    shutil.copytree(ROOT / "templates" / "search", directory / "search", dirs_exist_ok=True)
    for template in (directory / "search").glob("*.jinja"):
        template.write_text(template.read_text() + f"// copy {number}\n")
    toml = directory / "family.toml"
    toml.write_text(re.sub(r'(name\s*=\s*)"search"', rf'\1"search{number}"', toml.read_text()))
    return directory


def _copy_of_heavy(directory: Path, number: int) -> Path:
    shutil.copytree(HEAVY, directory)
    for template in directory.glob("*.jinja"):
        template.write_text(template.read_text() + f"// copy {number}\n")
    toml = directory / "family.toml"
    toml.write_text(toml.read_text().replace('"heavy"', f'"heavy{number}"'))
    return directory


def _against_nvcc(
    name: str, directories: list[Path], place: Path, options: argparse.Namespace
) -> dict[str, dict[str, object]]:
    figures: dict[str, dict[str, object]] = {}
    for images, code, sources in _by_images(directories, place / "sources" / name, options.images):
        times: dict[str, list[float]] = {"jitlto": [], "nvcc": []}
        for _ in range(options.rounds):
            times["jitlto"].append(_jitlto(directories, place))
            times["nvcc"].append(_nvcc(options.nvcc, sources, code, options.cores))
        ratios = [b / a for a, b in zip(times["jitlto"], times["nvcc"], strict=True)]
        figures[images] = {
            "fragments": len(sources),
            "jitlto_seconds": [round(t, 2) for t in times["jitlto"]],
            "nvcc_seconds": [round(t, 2) for t in times["nvcc"]],
            "ratio": [round(r, 2) for r in ratios],
            "median_ratio": round(statistics.median(ratios), 2),
        }
        if options.one_job:
            alone = _jitlto(directories, place, "--jobs", "1")
            speed_up = alone / statistics.median(times["jitlto"])
            figures[images] |= {"one_job_seconds": round(alone, 2), "speed_up": round(speed_up, 2)}
        print(f"{name}, {images}: {len(sources)} fragments, {figures[images]}", flush=True)
    return figures


def _beside_nvcc(
    name: str, directories: list[Path], place: Path, options: argparse.Namespace
) -> dict[str, dict[str, object]]:
    """The processor time of a build by the nvcc toolchain, and of the same nvcc alone."""
    figures: dict[str, dict[str, object]] = {}
    peer = str(Compiler().path)
    for images, code, sources in _by_images(directories, place / "sources" / f"nvcc_{name}", options.images, "nvcc"):
        times: dict[str, list[float]] = {"jitlto": [], "nvcc": []}
        for _ in range(options.rounds):
            begin = _processor_time()
            _jitlto(directories, place)
            between = _processor_time()
            _nvcc(peer, sources, code, options.cores)
            times["jitlto"].append(between - begin)
            times["nvcc"].append(_processor_time() - between)
        ratios = [a / b for a, b in zip(times["jitlto"], times["nvcc"], strict=True)]
        figures[images] = {
            "fragments": len(sources),
            "jitlto_processor_seconds": [round(t, 2) for t in times["jitlto"]],
            "nvcc_processor_seconds": [round(t, 2) for t in times["nvcc"]],
            "ratio": [round(r, 3) for r in ratios],
            "median_ratio": round(statistics.median(ratios), 3),
        }
        print(f"nvcc toolchain, {name}, {images}: {figures[images]}", flush=True)
    return figures


def _processor_time() -> float:
    """Of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _by_images(
    directories: list[Path], place: Path, only: str | None, toolchain: str = "nvrtc"
) -> Iterator[tuple[str, str, list[tuple[Path, list[str]]]]]:
    """Declare families for each of the images: those, nvcc's name of them, and the sources in files."""
    for images, code in _IMAGES:
        if only not in (None, images):
            continue
        for directory in directories:
            declared = '["ltoir"]' if images == "ltoir" else '["ltoir", "ptx"]'
            _choose_images(directory / "family.toml", declared, toolchain)
        yield images, code, _sources(directories, place / images.replace(" ", "_"))


def _choose_images(toml: Path, images: str, toolchain: str = "nvrtc") -> None:
    text = re.sub(r"^(?:images|toolchain)\b.*\n", "", toml.read_text(), flags=re.M)
    toml.write_text(text.replace("[family]\n", f'[family]\nimages = {images}\ntoolchain = "{toolchain}"\n'))


def _sources(directories: list[Path], place: Path) -> list[tuple[Path, list[str]]]:
    """The rendered sources as files, with the include directories of each."""
    sources = []
    for directory in directories:
        declared = declaration.load_family(directory / "family.toml")
        for number, rendered in enumerate(render_family(declared)):
            path = place / declared.name / f"{rendered.key.group}{number}.cu"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(rendered.source)
            sources.append((path, [f"-I{include}" for include in declared.include]))
    return sources


def _jitlto(directories: list[Path], place: Path, *extra: str) -> float:
    """The whole command, from an empty cache, in a fresh process; it makes the images of the peer and no others."""
    command = [sys.executable, "-m", "jitlto", "build", *map(str, directories), "-o", str(place / "out.fragdb")]
    command += ["--no-cache", "--quiet", *extra]
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    return time.perf_counter() - begin


def _nvcc_command(nvcc: str, code: str) -> list[str]:
    return [nvcc, "-std=c++17", "-rdc=true", "-fatbin", "-gencode", f"arch=compute_75,code={code}"]


def _nvcc(nvcc: str, sources: list[tuple[Path, list[str]]], code: str, cores: int) -> float:
    """One process a source, as many at once as there are cores."""

    def one(source: tuple[Path, list[str]]) -> None:
        path, includes = source
        command = [*_nvcc_command(nvcc, code), *includes, str(path), "-o", str(path.with_suffix(".fatbin"))]
        subprocess.run(command, check=True, capture_output=True)

    begin = time.perf_counter()
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(one, sources))
    return time.perf_counter() - begin


def _nvcc_version(nvcc: str) -> str:
    text = subprocess.run([nvcc, "--version"], check=True, capture_output=True, text=True).stdout
    return next(line.strip() for line in text.splitlines() if "release" in line)


def _no_op(place: Path, rounds: int, fragments: int) -> dict[str, object]:
    """Building so many fragments again when nothing has changed: the whole command."""
    path = write_family(place / "many", _many_fragments(fragments))
    command = [sys.executable, "-m", "jitlto", "build", str(path), "-o", str(place / "many.fragdb"), "--json"]
    command += ["--quiet"]
    own = {**os.environ, "JITLTO_CACHE_DIR": str(place / "cache")}
    first = json.loads(subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=own).stdout)
    seconds, starts = [], []
    for _ in range(max(5, rounds)):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import jitlto.cli.build"], check=True, cwd=ROOT)
        starts.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        again = json.loads(subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=own).stdout)
        seconds.append(time.perf_counter() - begin)
        if again["compiled"] or again["digest"] != first["digest"]:
            raise SystemExit(f"{again['compiled']} fragments were compiled again")
    figures = {
        "fragments": len(again["fragments"]),
        "compiled_at_first": first["compiled"],
        "seconds": [round(t, 3) for t in seconds],
        "median_seconds": round(statistics.median(seconds), 3),
        "interpreter_and_imports_median_seconds": round(statistics.median(starts), 3),
    }
    print(f"no-op rebuild: {figures}", flush=True)
    return figures


def _many_fragments(count: int) -> dict[str, str]:
    """Small fragments in groups as those of an IVF-Flat search: of 341, 320, 16, 3 and 2."""
    groups = {"scan": count - 21, "metric": 16, "post": 3, "filter": 2}
    files = {
        "calls.cuh": "#pragma once\n#include <cuda_fp16.h>\n"
        + "".join(f"template <int N> __device__ float {name}(float);\n" for name in ("metric", "post", "filter"))
    }
    toml = ['[family]\nname = "many"\n']
    for name, count in groups.items():
        files[f"{name}.json"] = json.dumps({f"{name}_n": [str(n) for n in range(count)]})
        role = "entrypoint" if name == "scan" else "device"
        toml.append(f'[{role}.{name}]\nmatrix = "{name}.json"\ntemplate = "{name}.cu.jinja"\nkey = ["{name}_n"]\n')
        if role == "device":
            toml.append('interface = "calls.cuh"\n')
            files[f"{name}.cu.jinja"] = (
                f"template <int N> __device__ float {name}(float x) {{ return x * ({{{{{name}_n}}}} + 1); }}\n"
                f"template __device__ float {name}<0>(float);\n"
            )
    files["scan.cu.jinja"] = (
        '#include "calls.cuh"\ntemplate <int N> __global__ void scan(float* x) '
        "{ x[threadIdx.x] = post<0>(filter<0>(metric<0>(x[threadIdx.x] + N))); }\n"
        "template __global__ void scan<{{scan_n}}>(float*);\n"
    )
    return files | {"family.toml": "".join(toml)}


if __name__ == "__main__":
    main()
