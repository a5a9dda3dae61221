"""The build engine against one nvcc process a fragment, on the same cores and the same sources; and what it saves.

python -m tests.benchmarks.build_engine --output docs/benchmarks/build_engine.json

Needs an nvcc (--nvcc, or on PATH); one of NVRTC's own release makes the fairest peer. Rounds are interleaved: each
measures every side once. Both sides make the same images: LTO-IR alone, then LTO-IR and PTX. `--only processor`
compares the processor time of builds, with each compiler, with that of the compiler itself on the same sources, and
measures that of `jitlto check`:

python -m tests.benchmarks.build_engine --only processor --cores 2 --output docs/benchmarks/build_engine_processor.json
"""

import compileall
import json
import os
import re
import shutil
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from jitlto.families import declaration
from tests.benchmarks import compiler_peers, script
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import in_turn, processor_seconds, ratio, seconds
from tests.support.families import write_family
from tests.support.process import ROOT

HEAVY, WIDE = (Path(__file__).with_name(name) for name in ("heavy", "wide"))
PARTS = ("light", "heavy", "processor", "shipped", "noop")


def measure(options: Options) -> Result:
    compileall.compile_dir(ROOT / "jitlto", quiet=1)  # as pip leaves a package that it installs
    script.use_cores(options.cores)
    place: Path = options.place
    result: Result = {"cores": options.cores, "rounds": options.rounds}
    for part in [options.only] if options.only else PARTS:
        if part in ("light", "heavy"):
            nvcc = compiler_peers.find(options.nvcc)
            result["peer_version"] = compiler_peers.release(nvcc)
            result[part] = _against_nvcc(_families(part, place, options), nvcc, options)
        elif part == "processor":
            result["peer_version"] = compiler_peers.release(compiler_peers.find(options.nvcc))
            result["processor_seconds"] = _processor_time(place / "processor", options)
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


def _processor_time(place: Path, options: Options) -> Result:
    """Of builds and of the compilers alone, making the same images; and of `jitlto check` where nothing is proved."""
    figures: Result = {}
    for toolchain in ("nvrtc", "nvcc"):
        shutil.copytree(WIDE, place / toolchain)
        _choose(place / toolchain / "family.toml", "ltoir and ptx", toolchain)
    wide = {name: place / name / "family.toml" for name in ("nvrtc", "nvcc")}
    families = ("ivf_flat", "nvrtc", declaration.find_family("ivf_flat")), *(("wide", *each) for each in wide.items())
    for name, toolchain, toml in families:
        peer = _peer([toml], place / "sources", toolchain, options)
        sides = {"jitlto": partial(_build, [toml], place), toolchain: peer}
        times = in_turn(sides, options.rounds, processor_seconds)
        figures[f"{name}, {toolchain}"] = _rounded(times) | {f"jitlto/{toolchain}": ratio(times, "jitlto", toolchain)}
        if toolchain == "nvrtc":
            shutil.copy(place / "out.fragdb", place / f"{name}.fragdb")
            times = in_turn({"jitlto": partial(_check, place / f"{name}.fragdb")}, options.rounds, processor_seconds)
            figures[f"check {name}"] = _rounded(times)
        print(figures, flush=True)
    return figures


def _peer(tomls: list[Path], place: Path, toolchain: str, options: Options) -> partial[None]:
    if toolchain == "nvrtc":
        return partial(compiler_peers.run_nvrtc, compiler_peers.nvrtc_shares(tomls, place, options.cores))
    nvcc = compiler_peers.find(options.nvcc)
    commands = compiler_peers.nvcc_commands(tomls, place, nvcc, "ltoir and ptx")
    return partial(compiler_peers.run, commands, options.cores)


def _check(database: Path) -> None:
    with tempfile.TemporaryDirectory() as cache:
        script.jitlto("check", database, JITLTO_CACHE_DIR=cache)


def _rounded(times: dict[str, list[float]]) -> Result:
    return {name: script.rounded(each) for name, each in times.items()}


def _against_nvcc(tomls: list[Path], nvcc: str, options: Options) -> dict[str, Result]:
    """A build and nvcc alone, making the same images, on the clock."""
    figures: dict[str, Result] = {}
    for images in [options.images] if options.images else compiler_peers.IMAGES:
        for toml in tomls:
            _choose(toml, images, "nvrtc")
        commands = compiler_peers.nvcc_commands(tomls, options.place / "sources", nvcc, images)
        sides: dict[str, Any] = {
            "jitlto": partial(_build, tomls, options.place),
            "nvcc": partial(compiler_peers.run, commands, options.cores),
        }
        if options.one_job:
            sides["one job"] = partial(_build, tomls, options.place, "--jobs", "1")
        times = in_turn(sides, options.rounds, seconds)
        figures[images] = {
            "fragments": len(commands),
            "seconds": _rounded(times),
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
        __doc__, measure, only=PARTS, images=tuple(compiler_peers.IMAGES), nvcc="", rounds=3, cores=cores, copies=4,
        heavy_copies=1, one_job=False, fragments=341,
    )  # fmt: skip
