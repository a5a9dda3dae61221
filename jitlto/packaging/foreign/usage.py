"""Usage requirements of CMake targets: the headers, definitions and options that a library's users compile with."""

from __future__ import annotations

import os.path
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jitlto.packaging.foreign.cmake import Command
from jitlto.packaging.foreign.generator_expressions import evaluate

_PASSED_ON = ("INTERFACE", "PUBLIC")
_SCOPES = (*_PASSED_ON, "PRIVATE")
_KINDS = {
    "target_include_directories": "include", "include_directories": "include",
    "target_compile_options": "options", "add_compile_options": "options",
    "target_compile_definitions": "definitions", "add_compile_definitions": "definitions", "add_definitions": "options",
    "target_compile_features": "features",
    "target_link_libraries": "links",
}  # fmt: skip
_PROPERTIES = {
    "INTERFACE_INCLUDE_DIRECTORIES": "include", "INTERFACE_SYSTEM_INCLUDE_DIRECTORIES": "include",
    "INTERFACE_COMPILE_OPTIONS": "options", "INTERFACE_COMPILE_DEFINITIONS": "definitions",
    "INTERFACE_COMPILE_FEATURES": "features", "INTERFACE_LINK_LIBRARIES": "links", "CUDA_STANDARD": "standard",
}  # fmt: skip
# Options whose value is the next argument.
_WITH_VALUE = re.compile(
    r"-Xcompiler|-Xptxas|-Xcudafe|-Xfatbin|-Xnvlink|-Xlinker|--?(?:compiler|ptxas|nvlink)-options|--?diag[-_](?:suppress|error|warn)"
    r"|-gencode|--generate-code|-arch|-std|--std|-[IDU]|-isystem|--?maxrregcount"
    r"|-(?:ccbin|o|odir|include|optf|MF|MT|code|t)|--(?:compiler-bindir|output-file|output-directory|pre-include)"
    r"|--(?:options-file|keep-dir|threads|gpu-architecture|gpu-code|include-path|system-include|define-macro)"
    r"|--(?:undefine-macro|dependency-output|dependency-target-name)"
)


@dataclass
class Requirements:
    """What a target is compiled with, in order and without repetitions.

    Args:
        unknown: Libraries that the project does not declare, and generator expressions that are not evaluated here.
    """

    include: list[Path] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    standards: set[int] = field(default_factory=set)
    unknown: list[str] = field(default_factory=list)


class Targets:
    """The targets of a project, as recorded commands declare them."""

    def __init__(self, commands: Iterable[Command]) -> None:
        # (target, kind) → (directory of the command, list); directories have no target.
        self._values: dict[tuple[str, str], list[tuple[Path, str]]] = defaultdict(list)
        self._of_directories: list[tuple[str, Path, str]] = []
        self._aliases: dict[str, str] = {}
        self._names: set[str] = set()
        for command in commands:
            self._add(command)

    def _add(self, command: Command) -> None:
        arguments = _split(command.arguments)
        if not arguments:  # as a variable that is not set leaves it
            return
        match command.name:
            case "add_library":
                self._names.add(arguments[0])
                if arguments[1:2] == ["ALIAS"] and len(arguments) > 2:
                    self._aliases[arguments[0]] = arguments[2]
            case "set_target_properties" if "PROPERTIES" in arguments:
                place = arguments.index("PROPERTIES")
                # Each value is one argument, which may be a list.
                whole = command.arguments[len(command.arguments) - _count_after(command.arguments, "PROPERTIES") :]
                for name, value in zip(whole[::2], whole[1::2], strict=False):
                    self._set(arguments[:place], name, value, command.directory)
            case "set_property" if "PROPERTY" in arguments[:-1]:
                place = arguments.index("PROPERTY")
                targets = [each for each in arguments[:place] if each not in ("APPEND", "APPEND_STRING")]
                self._set(targets, arguments[place + 1], ";".join(arguments[place + 2 :]), command.directory)
            case "include_directories" | "add_compile_options" | "add_compile_definitions" | "add_definitions":
                values = ";".join(each for each in arguments if each not in ("AFTER", "BEFORE", "SYSTEM"))
                self._of_directories.append((_KINDS[command.name], command.directory, values))
            case name if name in _KINDS:
                self._require(arguments[0], _KINDS[name], arguments[1:], command.directory)

    def _set(self, targets: Iterable[str], name: str, value: str, directory: Path) -> None:
        if kind := _PROPERTIES.get(name):
            for target in targets:
                self._values[target, kind].append((directory, value))

    def _require(self, target: str, kind: str, arguments: Sequence[str], directory: Path) -> None:
        scope = "PUBLIC"  # target_link_libraries without a keyword
        values = []
        for argument in arguments:
            if argument in _SCOPES:
                scope = argument
            elif scope in _PASSED_ON and argument not in ("AFTER", "BEFORE", "SYSTEM"):
                values.append(argument)
        self._values[target, kind].append((directory, ";".join(values)))

    def requirements(self, libraries: str, directory: Path) -> Requirements:
        """Return what a target of a directory is compiled with that links privately with libraries.

        Args:
            libraries: A list, separated by semicolons.
        """
        found = Requirements()
        for kind, of, values in self._of_directories:
            if directory.is_relative_to(of):
                self._take(found, kind, values, of)
        seen: set[str] = set()
        self._follow(found, libraries, seen)
        found.include = list(dict.fromkeys(found.include))
        found.options = list(dict.fromkeys(found.options))
        found.unknown = list(dict.fromkeys(found.unknown))
        return found

    def _follow(self, found: Requirements, libraries: str, seen: set[str]) -> None:
        elements, unknown = evaluate(libraries, self._names)
        found.unknown += unknown
        for library in elements:
            target = self._aliases.get(library, library)
            if target in seen:
                continue
            seen.add(target)
            if target not in self._names and not any(name == target for name, _ in self._values):
                if not target.startswith("-") and os.sep not in target:
                    found.unknown.append(target)
                continue
            for kind in ("include", "options", "definitions", "features", "standard"):
                for directory, values in self._values.get((target, kind), ()):
                    self._take(found, kind, values, directory)
            for _, values in self._values.get((target, "links"), ()):
                self._follow(found, values, seen)

    def _take(self, found: Requirements, kind: str, values: str, directory: Path) -> None:
        elements, unknown = evaluate(values, self._names)
        found.unknown += unknown
        if kind == "include":
            found.include += [Path(os.path.normpath(directory / each)) for each in elements]
        elif kind == "definitions":
            found.options += [f"-D{each.removeprefix('-D')}" for each in elements]
        elif kind == "options":
            found.options += join_options(elements)
        elif kind == "standard":
            found.standards.update(int(each) for each in elements if each.isdecimal())
        else:
            matches = (re.fullmatch(r"(?:cuda|cxx)_std_(\d+)", each) for each in elements)
            found.standards.update(int(match[1]) for match in matches if match)


def join_options(elements: Iterable[str]) -> list[str]:
    """Join each option and its value to one text, and split those that CMake's ``SHELL:`` keeps together."""
    words: list[str] = []
    for element in elements:
        words += split_command_line(element.removeprefix("SHELL:")) if element.startswith("SHELL:") else [element]
    options: list[str] = []
    for word in words:
        if options and _WITH_VALUE.fullmatch(options[-1]):
            options[-1] += word if options[-1] in ("-I", "-D", "-U") else f"={word}"
        else:
            options.append(word)
    return options


def split_command_line(text: str) -> list[str]:
    """Split a command line as a Unix shell does; one with an open quote is one word, which no compiler takes."""
    try:
        return shlex.split(text)
    except ValueError:
        return [text]


def _split(arguments: Iterable[str]) -> list[str]:
    return [element for argument in arguments for element in argument.split(";")]


def _count_after(arguments: Sequence[str], keyword: str) -> int:
    return len(arguments) - 1 - arguments.index(keyword) if keyword in arguments else 0
