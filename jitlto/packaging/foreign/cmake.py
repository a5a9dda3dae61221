"""Reading of CMake projects: CMake itself configures one, with stubs in place of what needs compilers (``project/``).

Neither a compiler nor the project's dependencies are needed; the targets of those that are installed count.
``execute_process()`` does nothing. What the project writes or removes with ``file()`` or ``configure_file()`` is where
it says: by default in a temporary build directory.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jitlto.base.errors import ForeignBuildError, ToolchainError
from jitlto.base.files import temporary_directory
from jitlto.base.versions import Version
from jitlto.cuda import toolkit

_PROJECT = Path(__file__).parent / "project"
# CMake names the command that it does not know.
_UNKNOWN = re.compile(r"CMake Error at .+:\d+ \((\w+)\):\s+Unknown CMake command")
_STUBS = re.compile(rf"{re.escape(str(_PROJECT))}/|.*/CMakeFindDependencyMacro\.cmake$")
_TRACE = "trace.json"
_LONGEST_RUN = 120.0  # seconds; the largest project known takes one


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call of ``generate_jit_lto_kernels``, or of ``rtcx_embed_blob``, with what it compiles with.

    Args:
        arguments: Expanded, by name; each may be a list, separated by semicolons. Variables of CMake too, those that
            the template uses with ``@`` before their names.
        include, definitions, options, features: Those of its libraries and its directory, with generator expressions
            evaluated.
        own: Definitions and options of the object library alone.
    """

    arguments: Mapping[str, str]
    include: Sequence[str]
    definitions: Sequence[str]
    options: Sequence[str]
    features: Sequence[str]
    own: Sequence[str]

    @property
    def directory(self) -> Path:
        """The source directory that the call is made in."""
        return Path(self.arguments["CMAKE_CURRENT_SOURCE_DIR"])


@dataclass(frozen=True, slots=True)
class Project:
    """What CMake made of a project.

    Args:
        lists: Its ``CMakeLists.txt``.
        output: The directory of all families.
        toolchain: The compiler that will build, which CMake's variables describe.
        calls: Those of ``generate_jit_lto_kernels``, in order.
        left_out: What an import leaves out, each with the first line that has it: so far commands, files and packages
            that are unknown without the project's dependencies.
        commands: The file and line of each command that was run, and its arguments.
        generated: What CMake wrote into its build tree, by where it is to be.
    """

    lists: Path
    output: Path
    toolchain: str
    calls: Sequence[RecordedCall]
    left_out: list[str]
    commands: Sequence[tuple[str, str]]
    generated: Mapping[Path, str]

    def has_directory(self, path: Path) -> bool:
        """Return whether a directory exists, or will have generated files."""
        return path.is_dir() or any(path in each.parents for each in self.generated)

    def leave_out(self, what: str, options: Iterable[str]) -> None:
        """Note options, with the first command that has each among its arguments, or at least its name."""
        for option in options:
            texts = (option, option.partition("=")[0])
            forms = [re.compile(rf"(?<![\w-]){re.escape(each)}(?![\w-])") for each in texts]
            found = (place for form in forms for place, text in self.commands if form.search(text))
            note = f"{next(found, self.lists)}: {what} {option}: left out"
            if note not in self.left_out:
                self.left_out.append(note)


def read_project(lists: Path, definitions: Mapping[str, str], output: Path, toolchain: str | None = None) -> Project:
    """Run a ``CMakeLists.txt`` and those that it includes.

    Args:
        lists: The file.
        definitions: Cache variables, as ``cmake -D`` takes them.
        output: The directory of all families. The build tree is to be ``generated`` in it.
        toolchain: The compiler that will build, ``nvcc`` or ``nvrtc``; by default the first that is installed.

    Raises:
        ToolchainError: If there is no CMake.
        ForeignBuildError: If the file does not exist, or CMake fails.
    """
    if not lists.is_file():
        hint = "name the project's CMakeLists.txt"
        raise ForeignBuildError("no such file", code="import-missing-file", where=str(lists), hint=hint)
    unknown: list[str] = []
    toolchain, variables = _ask_compiler(toolchain)
    while True:
        with temporary_directory("jitlto-") as temporary:
            log = _configure(lists, {**variables, **definitions}, unknown, Path(temporary))
            if log is None:
                try:
                    files = sorted(Path(temporary, "record").iterdir(), key=lambda path: int(path.name))
                    binary, place = Path(temporary, "binary"), output.absolute() / "generated"
                    calls = [_parse(path.read_text("utf-8").replace(str(binary), str(place))) for path in files]
                    trace, generated = _read_trace(Path(temporary)), _read_tree(binary, place)
                    return Project(lists, output.absolute(), toolchain, calls, *trace, generated)
                except (ValueError, TypeError, KeyError):
                    what = "the project has written to the record of its calls, or one of them is not UTF-8"
                    raise _error(what, lists) from None
        found = _UNKNOWN.search(log)
        if found is None or found[1] in unknown:
            raise _error(f"CMake cannot read it without its dependencies:\n{log.strip()}", lists, log)
        unknown.append(found[1])


def _configure(lists: Path, definitions: Mapping[str, str], unknown: Sequence[str], directory: Path) -> str | None:
    """Configure a project, with its calls recorded below a directory; return what CMake said if it failed."""
    (directory / "record").mkdir()
    own = {
        "JITLTO_SOURCE": str(lists.absolute().parent),
        "JITLTO_RECORD": str(directory / "record"),
        "JITLTO_UNKNOWN": ";".join(unknown),
        "JITLTO_PREFIXES": ";".join(_find_prefixes()),
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_MAKE_PROGRAM": sys.executable,  # nothing is built
    }
    command = [find_cmake(), "-Wno-dev", "--no-warn-unused-cli", "-G", "Unix Makefiles"]
    command += ["-S", str(_PROJECT), "-B", str(directory / "binary")]
    command += ["--trace-expand", "--trace-format=json-v1", f"--trace-redirect={directory / _TRACE}"]
    command += [f"-D{name}={value}" for name, value in {**definitions, **own}.items()]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_LONGEST_RUN)
    except subprocess.TimeoutExpired:
        raise _error(f"CMake does not end within {_LONGEST_RUN:g} seconds", lists) from None
    return done.stderr.decode("utf-8", "replace") if done.returncode else None


def _read_trace(directory: Path) -> tuple[list[str], list[tuple[str, str]]]:
    """Return what the stubs left out, and the project's own commands."""
    left_out: dict[str, str] = {}
    commands: list[tuple[str, str]] = []
    for entry in map(json.loads, (directory / _TRACE).read_text("utf-8", "replace").splitlines()[1:]):
        if entry["cmd"] == "jitlto_note":
            left_out.setdefault(entry["args"][0], commands[-1][0])
        elif not _STUBS.match(entry["file"]):
            commands.append((f"{entry['file']}:{entry['line']}", " ".join(entry["args"])))
    return [f"{place}: {what}: left out" for what, place in left_out.items()], commands


def _read_tree(binary: Path, place: Path) -> dict[Path, str]:
    """Return the files of a build tree, without CMake's own, by where they are to be."""
    own = re.compile(r"/(?:CMakeFiles/|(?:CMakeCache\.txt|Makefile|cmake_install\.cmake)$)")
    files = (path for path in binary.rglob("*") if path.is_file() and not own.search(path.as_posix()))
    return {place / path.relative_to(binary): path.read_bytes().decode("utf-8", "surrogateescape") for path in files}


def _ask_compiler(toolchain: str | None) -> tuple[str, dict[str, str]]:
    """Return the name of the compiler that will build, and what CMake's variables say of it if it is installed."""
    nvcc = None if toolchain == "nvrtc" else toolkit.find_binary("nvcc")
    try:
        text = subprocess.run([nvcc, "--version"], capture_output=True, check=False).stdout if nvcc else b""
        found = re.search(rb"V(\d+\.\d+\.\d+)", text)
        version = found[1].decode() if found else str(toolkit.nvrtc_version())
    except (OSError, ToolchainError):
        return toolchain or "nvcc", {}
    major, minor = Version.parse(version)
    names = "CMAKE_CUDA_COMPILER_VERSION", "CMAKE_CUDA_COMPILER_TOOLKIT_VERSION", "CUDAToolkit_VERSION"
    parts = {"CUDAToolkit_VERSION_MAJOR": f"{major}", "CUDAToolkit_VERSION_MINOR": f"{minor}"}
    variables = dict.fromkeys(names, version) | parts | {"CUDA_VERSION": f"{major}.{minor}"}
    return toolchain or ("nvcc" if nvcc else "nvrtc"), variables


def _find_prefixes() -> list[str]:
    """Return where installed wheels have CMake's packages: RAPIDS's, and NVIDIA's one folder deeper."""
    # Two folders deeper is CCCL of CUDA 13, which does not find its own headers; the toolchain has them.
    forms = "*/*/cmake", "nvidia/*/*/cmake"
    found = (path for place in sys.path for form in forms for path in Path(place).glob(form))
    return list(dict.fromkeys(str(path.parent.parent) for path in found))


def find_cmake() -> str:
    """Return the path of CMake: the one on ``PATH``, or that of its wheel.

    Raises:
        ToolchainError: If there is none.
    """
    beside = Path(sys.executable).with_name("cmake")  # where its wheel puts it
    found = shutil.which("cmake") or shutil.which(beside)
    if found is None:
        hint = "pip install 'jitlto[cmake]', or put a cmake of at least 3.20 on PATH"
        raise ToolchainError("CMake is not installed", code="toolchain-missing", hint=hint)
    return found


def _error(what: str, lists: Path, log: str = "") -> ForeignBuildError:
    hint = "set what it asks for with -D NAME=VALUE, leave a package out with -D CMAKE_DISABLE_FIND_PACKAGE_NAME=ON, "
    hint += "or name the CMakeLists.txt of the directory that declares the kernels"
    return ForeignBuildError(what, code="import-cmake", where=str(lists), hint=hint, log=log)


def _parse(text: str) -> RecordedCall:
    arguments, *lists = text.split("\x1e")
    named: dict[str, str] = {}
    for line in arguments.splitlines():
        name, value = (bytes.fromhex(word).decode() for word in line.split(" "))
        named[name] = value
    parts = ([part for part in each.strip().split(";") if part] for each in lists)
    include, definitions, options, features, own_include, own_definitions, own_options, own_features = parts
    own = [f"-D{each.removeprefix('-D')}" for each in own_definitions if each not in definitions]
    own += [each for each in own_options if each not in options]
    return RecordedCall(named, include + own_include, definitions, options, features + own_features, own)
