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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from jitlto.base.errors import CompileError, JitltoError
from jitlto.base.versions import Architecture
from jitlto.compile import headers, nvcc
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.headers import HeaderSearch
from jitlto.compile.nvrtc_program import Program, Step

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

    def to_json(self) -> dict[str, object]:
        """Return it as plain JSON."""
        return asdict(self)

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
    step = Step.from_options("ptx", Architecture.parse("75"), ("--std=c++17",))
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


def _split(text: str) -> list[str]:
    return text.split("|")


_DIRECTORIES = ("", "sub/", "a b/", "sub/in/")
_BASES = ("k.h", "l.h", "m.h")
_NAMES = [d + b for d in _DIRECTORIES for b in _BASES] + _split(
    "../k.h|../l.h|./k.h|./sub/l.h|sub/../k.h|none/../l.h|../sub/k.h|../b/k.h|K.h|none.h|sub//k.h|link/k.h|link/../l.h"
    "|alias.h|k.h/.|sub| k.h|in/k.h|../in/l.h|k'.h|l//.h"
)
_MACROS = ["H", "J", "ANGLED", "STR(k.h)", "STR(DIR/k.h)", "JOIN(H,)", "JOIN(J, )", "IN(l.h)", "LATER"]
_WORDS = _split(
    "#include |#include |#include |#include|# include /* c */ |  #\tinclude |%:include |#inc\\\nlude "
    "|/* c */ # include |#include \\\n |/* two\nlines */ #include |# /* two\n lines */ include "
    "|#include_next |#include_next |#include_\\\nnext "
)
_QUOTES = ("<", '"')
_AFTER = ["", "", "", " // c", " /* c */", " /* two\nlines */", " \\\n", "\r"]
_ASKS = _split(
    "__has_include({})|__has_include( {} )|__has_include(/* c */ {})|__has_include( \\\n {})|!__has_include({})"
    "|__has_in\\\nclude({})|(1 && __has_include({}))|defined(__has_include) && __has_include({})"
    '|__has_include /* c */ ({})|__has_include({}) // "c|0 \\\n + __has_include({}) /* < */'
)
#: Where an include is none.
_HIDING = _split(
    'const char* s = R"(\n{}\n)";|auto s = R"x(\n)"\n{}\n)x";|/*\n{}\n*/|// c \\\n{}|// c \\ \n{}'
    '|const char* s = "\\\n{}\\\n";'
    '|/* \' " R"( */\n{}\n// )"|\'"\'; // R"(\n{}\n// )"|// /*\n{}\n// */|auto n = 1\'0; // \'\n{}'
    '|#if 0\nit\'s /*\n{}\n#endif|#if 0\n{}\n#endif|"/*";\n{}\n"*/";|auto r = fooR"(a)";\n{}'
    "|int x; {}|/**/ int x; /*\n*/ {}|/*/\n{}\n/*/|int x; /* a\n b */ /* c */ {} // d"
)
_DEFINES = _split(
    "#undef H\n#define H J|#undef DIR\n#define DIR sub|#undef DIR\n#define DIR in|#undef DIR"
    '|#define HAS __has_include("k.h")'
    "|#undef HAS|#define HAS __has_include(<sub/k.h>)|#define LATER <k.h>|#define F1|#undef F1|%:define F2"
)
_CONDITIONS = ["#if HAS", "#ifdef F1", "#ifndef F1", "#if defined F2 && HAS", "#if 0", "#if 1"]
_ELSES = ["#else", "#else", "#elif defined(F1)", "#elif !HAS", "#elif 1"]
_ODD = re.compile(r"\w\\\n\w|%:|_next|\\ \n|\*/ ?(?:#|\{\})|HAS|\*/ /\*")
_PRELUDE = """\
#define STR2(x) #x
#define STR(x) STR2(x)
#define JOIN(a, b) a b
#define ANGLED <DIR/k.h>
#define IN(x) <sub/x>
#define H <m.h>
#define J "k.h"
"""
_PATHS = [f"{root}/{d}{base}" for root in ("a", "b") for d in _DIRECTORIES for base in _BASES] + [
    "k.h",
    "a/k'.h",
    "b/ k.h",
]
_ROOTS = ["a", "a|b", "a|b", "b|a", "a|a/sub", "a/sub|a", "a|b|a/sub", "a/a b|b"]


class _Writer:
    """Writes the texts of one tree."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._count = 0
        self._is_odd = self.chance(2)  # what NVRTC reads otherwise, or what macros name, is refused for it

    def _usual(self, values: Sequence[str]) -> str:
        """Choose one that is not odd, unless the tree is."""
        return self.pick(values if self._is_odd else [value for value in values if not _ODD.search(value)])

    def pick(self, values: Sequence[str]) -> str:
        """Choose one."""
        return values[self._draw(st.integers(0, len(values) - 1))]

    def chance(self, in_ten: int) -> bool:
        """Decide."""
        return self._draw(st.integers(0, 9)) < in_ten

    def warning(self) -> str:
        """Write a warning that no other line has."""
        self._count += 1
        return f"#warning {self._count}\n"

    def body(self, depth: int = 0) -> str:
        """Write some lines."""
        return self.warning() + "".join(self._lines(depth) for _ in range(self._draw(st.integers(0, 4 - depth))))

    def header(self, number: int) -> str:
        """Write a header that ends recursion: by the file, by a macro, or at the second time."""
        n, kind = number, self.pick(["guard", "guard", "once", "twice"])
        if kind == "once":
            return "#pragma once\n" + self.body()
        if kind == "guard":
            return f"#ifndef G{n}\n#define G{n}\n{self.body()}#endif\n"
        return f"#ifndef T{n}\n#define T{n}\n{self.body()}#elif !defined U{n}\n#define U{n}\n{self.body()}#endif\n"

    def _name(self) -> str:
        if self._is_odd and self.chance(2):
            return self.pick(_MACROS)
        return self.pick(["<{}>", '"{}"']).replace("{}", self.pick(_NAMES))

    def _include(self, name: str) -> str:
        return f"{self._usual(_WORDS)}{'' if name[0] in _QUOTES else ' '}{name}{self.pick(_AFTER)}"

    def _condition(self) -> str:
        if self.chance(3):
            return self.pick(_CONDITIONS)
        return "#if " + self._usual(_ASKS).replace("{}", self._name())

    def _lines(self, depth: int) -> str:
        kind = self._draw(st.integers(0, 9))
        if kind < 5:
            name = self._name()
            text = f"{self._include(name)}\n{self.warning()}"
            # Most names are those of no header, and a failing include ends a tree's answer.
            return text if self.chance(1) else f"#if __has_include({name})\n{text}#endif\n"
        if kind == 5:
            return (
                self._usual(_HIDING).replace("{}", self._include(self._name()).replace("\r", ""))
                + "\n"
                + self.warning()
            )
        if kind == 6:
            name = self._name()
            # A quote or a comment in a name is an error of NVRTC's, unless it stands in the directive itself.
            is_plain = not self._is_odd or (name[0] in _QUOTES and "'" not in name and "//" not in name)
            return f"#undef H\n#define H {name}\n" if is_plain else self._usual(_DEFINES) + "\n"
        if depth == 2:
            return ""
        middle = (
            self.pick(_ELSES) if self.chance(7) else "#el" + self._condition().partition("#")[2].replace("ifn", "if")
        )
        if middle.startswith("#elifdef"):
            middle = "#else"
        return f"{self._condition()}\n{self.body(depth + 1)}{middle}\n{self.body(depth + 1)}#endif\n"


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Trees of up to eight headers in up to three directories."""
    writer = _Writer(draw)
    paths = draw(st.sets(st.integers(0, len(_PATHS) - 1), min_size=1, max_size=8))
    files = {_PATHS[path]: writer.header(number) for number, path in enumerate(sorted(paths))}
    main = _PRELUDE + writer.body() + writer.body()
    links = {}
    for link in ("a/link", "b/link", "a/alias.h", "a/sub/alias.h"):
        if writer.chance(2):
            links[link] = writer.pick(["sub", "../b/sub", "k.h", "../b", "sub/in"])
    return Tree(tuple(writer.pick(_ROOTS).split("|")), files, main, links)


def load(path: Path) -> list[tuple[Tree, Answer]]:
    """Read trees with the answers of nvcc's preprocessor."""
    items = json.loads(path.read_text())
    return [(Tree.from_json(i["tree"]), Answer(tuple(i["warnings"]), i["failed"])) for i in items]
