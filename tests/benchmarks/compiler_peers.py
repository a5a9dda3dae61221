"""The compilers themselves, on the sources of families: what builds are held against."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jitlto.cuda import toolkit
from jitlto.families import declaration
from jitlto.families.templates import render_family

#: Images of a build, and nvcc's name of them.
IMAGES = {"ltoir": "lto_75", "ltoir and ptx": "[lto_75,compute_75]"}
_NVRTC = """
import json, sys
from pathlib import Path
from cuda.bindings import nvrtc
for source, options in json.loads(sys.stdin.read()):
    for image, own in ("LTOIR", ["-dlto"]), ("PTX", []):
        _, program = nvrtc.nvrtcCreateProgram(Path(source).read_bytes(), source.encode(), 0, [], [])
        given = [each.encode() for each in (*options, *own)]
        if nvrtc.nvrtcCompileProgram(program, len(given), given)[0]:
            sys.exit(f"NVRTC rejects {source}")
        data = b" " * getattr(nvrtc, f"nvrtcGet{image}Size")(program)[1]
        getattr(nvrtc, f"nvrtcGet{image}")(program, data)
        nvrtc.nvrtcDestroyProgram(program)
"""


def find(given: str) -> str:
    """The nvcc that was given, or the one on the path; ends the script if there is none."""
    found = given or shutil.which("nvcc")
    if found is None:
        raise SystemExit("there is no nvcc: give --nvcc PATH")
    return found


def release(nvcc: str) -> str:
    """What it says of its version."""
    text = subprocess.run([nvcc, "--version"], check=True, capture_output=True, text=True).stdout
    return next(line.strip() for line in text.splitlines() if "release" in line)


def nvcc_commands(tomls: Sequence[Path], place: Path, nvcc: str, images: str) -> list[list[str]]:
    """A command for each source."""
    fixed = [nvcc, "-rdc=true", "-fatbin", "-gencode", f"arch=compute_75,code={IMAGES[images]}"]
    every = _sources(tomls, place / images.replace(" ", "_"))
    return [[*fixed, *own, str(source), "-o", str(source.with_suffix(".fatbin"))] for source, own in every]


def run(commands: Sequence[Sequence[str]], cores: int) -> None:
    """Run them, as many at once as there are cores."""
    with ThreadPoolExecutor(cores) as threads:
        list(threads.map(lambda command: subprocess.run(command, check=True, capture_output=True), commands))


def nvrtc_shares(tomls: Sequence[Path], place: Path, cores: int) -> list[str]:
    """The sources with their options, as JSON, in a share for each core."""
    roots = [f"-I{root}" for root in toolkit.header_roots()]
    fixed = ["-rdc=true", "-arch=compute_75"]
    jobs = [(str(source), [*fixed, *own, *roots]) for source, own in _sources(tomls, place)]
    return [json.dumps(jobs[n::cores]) for n in range(cores)]


def run_nvrtc(shares: Sequence[str]) -> None:
    """Compile shares to LTO-IR and PTX, each in one process."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def compile_(share: str) -> None:
        subprocess.run([sys.executable, "-c", _NVRTC], input=share, text=True, env=environment, check=True)

    with ThreadPoolExecutor(len(shares)) as threads:
        list(threads.map(compile_, shares))


def _sources(tomls: Sequence[Path], place: Path) -> Iterator[tuple[Path, list[str]]]:
    """The sources of families and those that they use, written into a directory, with the options of their groups."""
    every = [declaration.load_family(toml) for toml in tomls]
    for family in {used.name: used for each in every for used in (each, *each.all_used().values())}.values():
        include = [f"-I{directory}" for directory in family.include]
        for number, rendered in enumerate(render_family(family)):
            source = place / family.name / f"{rendered.group.name}{number}.cu"
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(rendered.source)
            yield source, [*family.compiler_options(rendered.group), *include]
