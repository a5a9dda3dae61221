"""Trees of headers for asking two preprocessors which of them an include means.

A tree answers with the ``#warning`` texts that its source leaves, in order: nvcc's preprocessor (the host compiler's)
on real directories, NVRTC on virtual headers.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jitlto.base.errors import CompileError, JitltoError
from jitlto.base.versions import Architecture
from jitlto.compile import headers, nvcc
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.headers import HeaderSearch
from jitlto.compile.nvrtc_program import Program, Step
from jitlto.record.fragment import ImageKind

_GCC = re.compile(r"warning: #warning (\S+)")
_NVRTC = re.compile(r"#warning directive: (\S+)")
_MISSING = re.compile(r'^(.*)\(\d+\): catastrophic error: could not open source file "([^"]+)"', re.M)


@dataclass(frozen=True)
class Tree:
    """Headers, the directories they are searched in, and a source that is beside none of them."""

    roots: tuple[str, ...]
    files: dict[str, str]
    main: str
    links: dict[str, str] = field(default_factory=dict)  # symbolic links: path → target

    def write(self, directory: Path) -> list[Path]:
        """Write it; return the roots."""
        for root in self.roots:
            (directory / root).mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(text.encode())
        for name, target in self.links.items():
            if not os.path.lexists(directory / name) and (directory / name).parent.is_dir():
                (directory / name).symlink_to(target)
        return [directory / root for root in self.roots]

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Tree:
        """Read what :meth:`to_json` returned."""
        return cls(**value | {"roots": tuple(value["roots"])})


@dataclass(frozen=True)
class Answer:
    """What a preprocessor read: the warnings, and whether it failed; or the code with which the tree was refused.

    A compiler also fails at what is no program; only a preprocessor's error stops it.
    """

    warnings: tuple[str, ...]
    failed: bool
    stopped: bool = False
    lacking: bool = False  # at an include of what is nowhere; GCC forgives it after a __has_include of the same
    refused: str | None = None


# --- the preprocessors ---


@functools.cache
def preprocessor() -> str | None:
    """Return GCC's own preprocessor, which nvcc runs; None if it is not installed."""
    gcc = shutil.which("g++")
    if gcc is None:
        return None
    found = subprocess.run([gcc, "-print-prog-name=cc1plus"], capture_output=True, text=True, check=True).stdout.strip()
    return found if Path(found).is_file() else None


def ask_gcc(tree: Tree, directory: Path) -> Answer:
    """Return the answer of GCC's preprocessor on real directories."""
    roots = tree.write(directory)
    main = directory / "-main" / "main.cu"
    main.parent.mkdir(exist_ok=True)
    main.write_bytes(tree.main.encode())
    return _preprocess("main.cu", map(str, roots), main.parent)


def _preprocess(main: str, roots: Iterable[str], directory: Path) -> Answer:
    command = [str(preprocessor()), "-E", "-quiet", "-std=c++17", "-nostdinc", "-fno-diagnostics-show-caret"]
    command += ["-fmax-include-depth=60", "-o", os.devnull, main]
    command += [part for root in roots for part in ("-I", root)]
    done = subprocess.run(command, cwd=directory, capture_output=True, check=False, env={"LC_ALL": "C"})
    text = done.stderr.decode("utf-8", "surrogateescape")
    return Answer(tuple(_GCC.findall(text)), done.returncode != 0)


def ask_nvcc(program: str, tree: Tree, directory: Path) -> Answer:
    """Return the answer of ``nvcc -E``."""
    roots = tree.write(directory)
    main = directory / "-main" / "main.cu"
    main.parent.mkdir(exist_ok=True)
    main.write_bytes(tree.main.encode())
    command = [program, "-E", "-std=c++17", "-x", "cu", "main.cu", "-o", os.devnull]
    command += [part for root in roots for part in ("-I", str(root))]
    done = subprocess.run(command, cwd=main.parent, capture_output=True, check=False)
    return Answer(tuple(_GCC.findall(done.stderr.decode("utf-8", "surrogateescape"))), done.returncode != 0)


def ask_nvrtc(tree: Tree, directory: Path) -> Answer:
    """Return the answer of NVRTC on virtual headers."""
    roots = tree.write(directory)
    step = Step(ImageKind.PTX, Architecture.parse("75"), ("--std=c++17",))
    try:
        source = HeaderSearch(roots, strict=True).closure(tree.main.encode())
    except JitltoError as error:
        return Answer((), False, refused=error.code)
    try:
        output = nvrtc.run_program(Program.whole(source), source.headers, step)
    except CompileError as error:
        stopped = "catastrophic error" in error.log
        missing = _MISSING.search(error.log)
        lacking = missing is not None and not _exists(missing[2], missing[1], roots)
        return Answer(tuple(_NVRTC.findall(error.log)), True, stopped, lacking)
    return Answer(tuple(_NVRTC.findall(output.log)), False)


def ask_as_written(tree: Tree, directory: Path) -> Answer:
    """Return the answer of GCC's preprocessor on the files that a job for nvcc has."""
    roots = tree.write(directory)
    try:
        search = HeaderSearch(roots, as_written=True)
        source = search.complete(search.closure(tree.main.encode()))
    except JitltoError as error:
        return Answer((), False, refused=error.code)
    with tempfile.TemporaryDirectory() as work:
        headers.lay_out(Path(work), source.headers)
        main = f"{nvcc.SOURCE}/main.cu"
        (Path(work) / nvcc.SOURCE).mkdir(parents=True)
        (Path(work) / main).write_bytes(source.text)
        return _preprocess(main, headers.include_directories(source.headers), Path(work))


def agree(expected: Answer, found: Answer) -> bool:
    """Whether NVRTC read what nvcc reads, or was not asked. What is read before an error does not matter."""
    if found.refused is not None:
        return found.refused.startswith("jitlto-header-")
    if expected.failed:
        return found.failed
    if found.lacking:
        return expected.warnings[: len(found.warnings)] == found.warnings
    return found.warnings == expected.warnings and not found.stopped


def _exists(name: str, includer: str, roots: Sequence[Path]) -> bool:
    beside = [(root / includer).parent for root in roots if (root / includer).is_file()]
    return any((directory / name).is_file() for directory in [*roots, *beside[:1]])


# --- trees ---


def load(path: Path) -> list[tuple[Tree, Answer]]:
    """Read trees with the answers of nvcc's preprocessor."""
    items = json.loads(path.read_text())
    return [(Tree.from_json(i["tree"]), Answer(tuple(i["warnings"]), i["failed"])) for i in items]
