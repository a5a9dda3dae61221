"""A library imported by one command: its builds by nvcc and by NVRTC, their CPU time against raw nvcc's for the same
images of the same sources, the proof that every kernel links, and a build without work.

python -m tests.benchmarks.foreign_tree --output docs/benchmarks/foreign_tree.json

Needs nvcc and CMake. The library is the one of `tests/support/foreign_tree`, in the style of RAPIDS cuVS. CPU time is
that of all processes, user and system, and measured for each family in turn, without the comparison for later
architectures, which nvcc does not make either. All parts take ten minutes on two cores.
"""

from __future__ import annotations

import json
import os
import re
from functools import partial
from pathlib import Path

from tests.benchmarks import nvcc_peer, script
from tests.benchmarks.script import Options, Result
from tests.benchmarks.timing import in_turn, processor_seconds, seconds, summary
from tests.support.foreign import TREE, for_nvrtc

FAMILIES = ["brute_force", "cluster", "ivf"]
PARTS = ("processor_time", "linked", "no_op")
Paths = dict[str, list[Path]]


def measure(options: Options) -> Result:
    paths: Paths = {}
    for tool in ("nvcc", "nvrtc"):
        script.jitlto("import", "cmake", TREE / "CMakeLists.txt", "-o", options.place / tool)
        paths[tool] = [options.place / tool / name / "family.toml" for name in options.families]
    for_nvrtc(options.place / "nvrtc")
    parts = {"processor_time": _processor_time, "linked": _linked, "no_op": _no_op}
    return {part: parts[part](paths, options) for part in ([options.only] if options.only else PARTS)}


def _processor_time(paths: Paths, options: Options) -> Result:
    """CPU seconds of each family with the groups that it uses: the compiler alone, and jitlto with both toolchains."""
    result: Result = {}
    nvcc, cores = nvcc_peer.find(options.nvcc), len(os.sched_getaffinity(0))
    for images in nvcc_peer.IMAGES:
        for path in options.place.glob("nv*/*/family.toml"):
            text = re.sub(r"^images\b.*\n", "", path.read_text(), flags=re.M)
            path.write_text(text.replace("[family]\n", f"[family]\nimages = {json.dumps(images.split(' and '))}\n"))
        result[images] = {}
        for path, same in zip(paths["nvcc"], paths["nvrtc"], strict=True):
            commands = nvcc_peer.commands([path], options.place / "sources", nvcc, images)
            build = ("build", "--quiet", "--no-cache", "-o", options.place / "out.fragdb")
            sides = {
                "nvcc alone": partial(nvcc_peer.run, commands, cores),
                "jitlto, nvcc": partial(script.jitlto, *build, path),
                "jitlto, nvrtc": partial(script.jitlto, *build, same),
            }
            used = {name: each for name, (each,) in in_turn(sides, 1, processor_seconds).items()}
            ratio = round(used["jitlto, nvcc"] / used["nvcc alone"], 3)
            result[images][path.parent.name] = {"fragments": len(commands), **used, "jitlto / nvcc": ratio}
    return result


def _linked(paths: Paths, options: Options) -> Result:
    """Whether every kernel links: those of the database that each toolchain builds."""
    result: Result = {}
    for tool, each in paths.items():
        database = options.place / f"{tool}.fragdb"
        built = json.loads(script.jitlto("build", "--quiet", *each, "-o", database, "--json"))
        proof = json.loads(script.jitlto("check", database, "--link", "sm_90", "--no-compare", "--no-cache", "--json"))
        result[tool] = {
            "fragments": len(built["fragments"]),
            "holds": proof["holds"],
            **{each["family"]: f"{each['linked']} of {each['kernels']} kernels" for each in proof["link"]["families"]},
        }
    return result


def _no_op(paths: Paths, options: Options) -> Result:
    """A whole command that finds all in the build cache."""
    build = ("build", "--quiet", *paths["nvcc"], "-o", options.place / "out.fragdb")
    script.jitlto(*build)
    sides = {"build": lambda: script.jitlto(*build)}
    return {
        "seconds": summary(in_turn(sides, 11, seconds)["build"]),
        "cpu seconds": summary(in_turn(sides, 5, processor_seconds)["build"]),
    }


if __name__ == "__main__":
    script.run(__doc__, measure, only=PARTS, nvcc="", families=FAMILIES)
