"""The build engine against one nvcc process a fragment, on the same cores and the same sources; and what it saves.

python -m tests.benchmarks.build_engine --output docs/benchmarks/build_engine.json

Needs an nvcc (--nvcc, or on PATH); one of NVRTC's own release makes the fairest peer. Rounds are interleaved: each
measures every side once. Both sides make the same images: LTO-IR alone, then LTO-IR and PTX. `--only nvcc` compares the
processor time of families with `toolchain = "nvcc"` with that of nvcc itself, on the same sources.
"""

import compileall
import json
import os
import re
import shutil
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from jitlto.compile.nvcc import Compiler
from jitlto.families import declaration
from tests.benchmarks import nvcc_peer, script
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import in_turn, processor_seconds, ratio, seconds
from tests.support.families import write_family
from tests.support.process import ROOT

HEAVY = Path(__file__).with_name("heavy")
PARTS = ("light", "heavy", "nvcc", "shipped", "noop")


def measure(options: Options) -> Result:
    compileall.compile_dir(ROOT / "jitlto", quiet=1)  # as pip leaves a package that it installs
    script.use_cores(options.cores)
    place: Path = options.place
    result: Result = {"cores": options.cores, "rounds": options.rounds}
    for part in [options.only] if options.only else PARTS:
        if part in ("light", "heavy"):
            nvcc = nvcc_peer.find(options.nvcc)
            result["peer_version"] = nvcc_peer.release(nvcc)
            result[part] = _against_nvcc(_families(part, place, options), nvcc, options)
        elif part == "nvcc":
            found = {name: _families(name, place / "nvcc", options) for name in ("light", "heavy")}
            nvcc = str(Compiler().path)
            result["nvcc_toolchain"] = {name: _against_nvcc(each, nvcc, options, True) for name, each in found.items()}
        elif part == "shipped":
            build = partial(_build, [declaration.find_family("ivf_flat")], place)
            taken = [seconds(build) for _ in range(max(5, options.rounds))]
            result["ivf_flat"] = {"seconds": script.rounded(taken), "least": round(min(taken), 2)}
        else:
            result["no_op"] = _no_op(place, options.rounds, options.fragments)
    return result


def _families(name: str, place: Path, options: Options) -> list[Path]:
    """Copies of a family, whose sources differ: equal ones would be compiled once."""
    if name == "light":
        return [copy_of_search(place / f"light{n}", n) for n in range(options.copies)]
    return [_copy_of_heavy(place / f"heavy{n}", n) for n in range(options.heavy_copies)]


def copy_of_search(directory: Path, number: int) -> Path:
    """The shipped family `search` under another name, with sources of its own; its ``family.toml``."""
    shutil.copytree(ROOT / "fragments" / "search", directory)
    shutil.copytree(ROOT / "matrices" / "search", directory / "search")
    shutil.copytree(ROOT / "templates" / "search", directory / "search", dirs_exist_ok=True)
    for template in (directory / "search").glob("*.jinja"):
        template.write_text(template.read_text() + f"// copy {number}\n")
    toml = directory / "family.toml"
    toml.write_text(re.sub(r'(name\s*=\s*)"search"', rf'\1"search{number}"', toml.read_text()))
    return toml


def _copy_of_heavy(directory: Path, number: int) -> Path:
    shutil.copytree(HEAVY, directory)
    for template in directory.glob("*.jinja"):
        template.write_text(template.read_text() + f"// copy {number}\n")
    toml = directory / "family.toml"
    toml.write_text(toml.read_text().replace('"heavy"', f'"heavy{number}"'))
    return toml


def _against_nvcc(tomls: list[Path], nvcc: str, options: Options, by_nvcc: bool = False) -> dict[str, Result]:
    """A build and nvcc alone, making the same images: on the clock, or processor time where nvcc compiles for both."""
    figures: dict[str, Result] = {}
    for images in [options.images] if options.images else nvcc_peer.IMAGES:
        for toml in tomls:
            _choose(toml, images, "nvcc" if by_nvcc else "nvrtc")
        commands = nvcc_peer.commands(tomls, options.place / "sources", nvcc, images)
        sides: dict[str, Any] = {
            "jitlto": partial(_build, tomls, options.place),
            "nvcc": partial(nvcc_peer.run, commands, options.cores),
        }
        if options.one_job:
            sides["one job"] = partial(_build, tomls, options.place, "--jobs", "1")
        times = in_turn(sides, options.rounds, processor_seconds if by_nvcc else seconds)
        figures[images] = {
            "fragments": len(commands),
            "processor_seconds" if by_nvcc else "seconds": {n: script.rounded(each) for n, each in times.items()},
            "nvcc/jitlto": ratio(times, "nvcc", "jitlto"),
        }
        print(images, figures[images], flush=True)
    return figures


def _choose(toml: Path, images: str, toolchain: str) -> None:
    text = re.sub(r"^(?:images|toolchain)\b.*\n", "", toml.read_text(), flags=re.M)
    chosen = f'images = {json.dumps(images.split(" and "))}\ntoolchain = "{toolchain}"\n'
    toml.write_text(text.replace("[family]\n", f"[family]\n{chosen}"))


def _build(tomls: list[Path], place: Path, *extra: str) -> None:
    """The whole command, from an empty cache, in a fresh process."""
    script.jitlto("build", *tomls, "-o", place / "out.fragdb", "--no-cache", "--quiet", *extra)


def _no_op(place: Path, rounds: int, fragments: int) -> Result:
    """Building so many fragments again when nothing has changed: the whole command."""
    path = write_family(place / "many", _many_fragments(fragments))
    built: list[Result] = []

    def build() -> None:
        built.append(json.loads(script.jitlto("build", path, "-o", place / "many.fragdb", "--json", "--quiet")))

    build()
    sides = {"build": build, "start": lambda: script.answer("import jitlto.cli.build; print(0)")}
    times = in_turn(sides, max(5, rounds), seconds)
    if any(again["compiled"] or again["digest"] != built[0]["digest"] for again in built[1:]):
        raise SystemExit("fragments were compiled again")
    return {
        "fragments": len(built[0]["fragments"]),
        "compiled_at_first": built[0]["compiled"],
        "seconds": script.rounded(times["build"], 3),
        "median_seconds": round(statistics.median(times["build"]), 3),
        "interpreter_and_imports_median_seconds": round(statistics.median(times["start"]), 3),
    }


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
    cores = min(2, len(os.sched_getaffinity(0)))
    script.run(
        __doc__, measure, only=PARTS, images=tuple(nvcc_peer.IMAGES), nvcc="", rounds=3, cores=cores, copies=4,
        heavy_copies=1, one_job=False, fragments=341,
    )  # fmt: skip
