"""Reading of CMake projects: CMake itself runs a ``CMakeLists.txt``, with functions in place of what needs a project.

Neither a compiler nor the project's dependencies are needed, and ``execute_process()`` does nothing. What the project
writes or removes with ``file()`` or ``configure_file()`` is where it says: by default in a temporary build directory.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jitlto.base.errors import ForeignBuildError, ToolchainError
from jitlto.base.files import temporary_directory

_HERE = Path(__file__).parent
# CMake names the command that it does not know, or that needs a project.
_UNUSABLE = re.compile(
    r"CMake Error at \S+:\d+ \((\w+)\):\s+(?:Unknown CMake command|(?:\w+ )?[Cc]ommand is not scriptable)"
)
_MOST_RUNS = 300
_LONGEST_RUN = 120.0  # seconds; the largest project known takes one


@dataclass(frozen=True, slots=True)
class Command:
    """One call of a command.

    Args:
        name: The command's.
        directory: The source directory that the call is made in.
        arguments: Expanded, except for generator expressions; one may be a list, separated by semicolons.
    """

    name: str
    directory: Path
    arguments: tuple[str, ...]


def read_project(lists: Path, definitions: Mapping[str, str]) -> tuple[list[Command], list[str]]:
    """Run a ``CMakeLists.txt`` and those that it includes.

    Args:
        lists: The file.
        definitions: Cache variables, as ``cmake -D`` takes them.

    Returns:
        What it calls of the commands that declare targets and fragments, in order; and the names of the commands that
        are unknown without the project's dependencies, which are left out.

    Raises:
        ToolchainError: If there is no CMake.
        ForeignBuildError: If the file does not exist, or CMake fails.
    """
    if not lists.is_file():
        hint = "name the project's CMakeLists.txt"
        raise ForeignBuildError("no such file", code="import-missing-file", where=str(lists), hint=hint)
    program = find_cmake()
    unknown: list[str] = []
    with temporary_directory("jitlto-") as temporary:
        record, binary = Path(temporary) / "record", Path(temporary) / "binary"
        binary.mkdir()
        for _ in range(_MOST_RUNS):
            record.write_bytes(b"")
            own = {
                "JITLTO_LISTS": str(lists.absolute()),
                "JITLTO_CALLS": str(_HERE / "calls.cmake"),
                "JITLTO_RECORD": str(record),
                "JITLTO_BINARY": str(binary),
                "JITLTO_UNKNOWN": ";".join(unknown),
            }
            defined = [f"-D{name}={value}" for name, value in {**definitions, **own}.items()]
            command = [program, *defined, "-P", str(_HERE / "record.cmake")]
            try:
                done = subprocess.run(
                    command,
                    cwd=binary,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    check=False,
                    timeout=_LONGEST_RUN,
                )
            except subprocess.TimeoutExpired:
                raise _error(f"CMake does not end within {_LONGEST_RUN:g} seconds", lists) from None
            if done.returncode == 0:
                lines = record.read_text("utf-8", "surrogateescape").splitlines()
                try:
                    return [_parse(line) for line in lines], unknown
                except ValueError:
                    raise _error("the project has written to the record of its calls", lists) from None
            log = done.stderr.decode("utf-8", "replace")
            unusable = _UNUSABLE.search(log)
            if unusable is None or unusable[1] in unknown:
                break
            unknown.append(unusable[1])
    raise _error(f"CMake cannot read it without its dependencies:\n{log.strip()}", lists, log)


def find_cmake() -> str:
    """Return the path of CMake: the one on ``PATH``, or that of its wheel.

    Raises:
        ToolchainError: If there is none.
    """
    if found := shutil.which("cmake"):
        return found
    try:
        import cmake  # imported lazily: only this command needs it
    except ImportError:
        hint = "pip install 'jitlto[cmake]', or put a cmake of at least 3.20 on PATH"
        raise ToolchainError("CMake is not installed", code="toolchain-missing", hint=hint) from None
    return os.path.join(cmake.CMAKE_BIN_DIR, "cmake")  # noqa: PTH118 - a program's name


def _error(what: str, lists: Path, log: str = "") -> ForeignBuildError:
    hint = (
        "set what it asks for with -D NAME=VALUE, or name the CMakeLists.txt of the directory that declares the kernels"
    )
    return ForeignBuildError(what, code="import-cmake", where=str(lists), hint=hint, log=log)


def _parse(line: str) -> Command:
    name, directory, *arguments = line.split(" ")
    return Command(name, Path(_text(directory)), tuple(_text(each[1:]) for each in arguments))


def _text(hexadecimal: str) -> str:
    return bytes.fromhex(hexadecimal).decode("utf-8", "surrogateescape")
