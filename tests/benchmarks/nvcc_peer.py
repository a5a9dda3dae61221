"""nvcc itself, a process for each source of a family: what builds are held against."""

import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jitlto.families import declaration
from jitlto.families.templates import render_family

#: Images of a build, and nvcc's name of them.
IMAGES = {"ltoir": "lto_75", "ltoir and ptx": "[lto_75,compute_75]"}


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


def commands(tomls: Sequence[Path], place: Path, nvcc: str, images: str) -> list[list[str]]:
    """A command for each source of families and those that they use, with the options of its group."""
    found = []
    every = [declaration.load_family(toml) for toml in tomls]
    for family in {used.name: used for each in every for used in (each, *each.all_used().values())}.values():
        include = [f"-I{directory}" for directory in family.include]
        for number, rendered in enumerate(render_family(family)):
            source = place / images.replace(" ", "_") / family.name / f"{rendered.group.name}{number}.cu"
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(rendered.source)
            fixed = [nvcc, "-rdc=true", "-fatbin", "-gencode", f"arch=compute_75,code={IMAGES[images]}"]
            own = family.compiler_options(rendered.group)
            found.append([*fixed, *own, *include, str(source), "-o", str(source.with_suffix(".fatbin"))])
    return found


def run(commands: Sequence[Sequence[str]], cores: int) -> None:
    """Run them, as many at once as there are cores."""
    with ThreadPoolExecutor(cores) as threads:
        list(threads.map(lambda command: subprocess.run(command, check=True, capture_output=True), commands))
