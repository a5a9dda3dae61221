"""Options of nvcc as the keys of ``family.toml`` that stand for them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jitlto.base.errors import JitltoError
from jitlto.record.options import LinkOptions, describe_invalid_option

_LINK_SWITCHES = {
    "use_fast_math": "fast_math", "ftz": "ftz", "prec-div": "prec_div", "prec-sqrt": "prec_sqrt", "fmad": "fma",
    "lineinfo": "lineinfo", "generate-line-info": "lineinfo",
}  # fmt: skip
# They concern the file around the code, the host or the optimisation of code that is not made here.
_NO_EFFECT = re.compile(
    r"-Xfatbin=.*|--?fatbin-options=.*|--?compress-(?:mode|all).*|-O\d|-dlto|--dlto|--?rdc=.*|--?relocatable-device-code=.*"
    r"|-Xcompiler=.*|--?compiler-options=.*|-Xlinker=.*|--?gpu-architecture=.*|-arch=.*|-gencode=.*|--generate-code=.*|--?std=.*"
)
# What nvcc runs and writes, and where; the value has been joined to the name.
_OF_THE_COMMAND = re.compile(
    r"(?:-ccbin|--compiler-bindir|-o|--output-file|-odir|--output-directory|-optf|--options-file|-MF|-MT|--keep-dir"
    r"|--dependency-output|--dependency-target-name)(?:=.*)?|-M|-MM|-MD|-MMD|-MP|--generate-(?:nonsystem-)?dependencies.*"
    r"|--?keep|--?run|--?dryrun|-[cEv]|--?(?:ptx|cubin|fatbin|compile|preprocess|verbose|shared|lib|link|device-c|dc|dw)"
    r"|-t=.*|--threads=.*"
)

# Options whose value is the next argument.
_WITH_VALUE = re.compile(
    r"-Xcompiler|-Xptxas|-Xcudafe|-Xfatbin|-Xnvlink|-Xlinker|--?(?:compiler|ptxas|nvlink)-options|--?diag[-_](?:suppress|error|warn)"
    r"|-gencode|--generate-code|-arch|-std|--std|-[IDU]|-isystem|--?maxrregcount"
    r"|-(?:ccbin|o|odir|include|optf|MF|MT|code|t)|--(?:compiler-bindir|output-file|output-directory|pre-include)"
    r"|--(?:options-file|keep-dir|threads|gpu-architecture|gpu-code|include-path|system-include|define-macro)"
    r"|--(?:undefine-macro|dependency-output|dependency-target-name)"
)


@dataclass
class Flags:
    """Options, sorted by where they are declared.

    Args:
        options: For the compiler.
        link: Options of the link.
        include: Directories of headers.
        dropped: Options that have no place in a declaration, with the reason.
    """

    options: list[str] = field(default_factory=list)
    link: dict[str, bool | int | list[str]] = field(default_factory=dict)
    include: list[Path] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def add(self, option: str) -> None:
        """Add an option, joined to its value."""
        if not option or _NO_EFFECT.fullmatch(option):
            return
        name, _, value = option.lstrip("-").partition("=")
        if found := re.fullmatch(r"(?:-I|-isystem=?|--include-path=|--system-include=)(.+)", option):
            self.include.append(Path(found[1]))
        elif name in _LINK_SWITCHES:
            self.link[_LINK_SWITCHES[name]] = value != "false"
        elif name == "maxrregcount":
            self._add_link("max_registers", int(value) if value.isdecimal() and len(value) < 10 else value)
        elif name in ("Xptxas", "ptxas-options"):
            held = self.link.get("ptxas", [])
            for each in value.split(","):
                if isinstance(held, list) and each not in held:
                    self._add_link("ptxas", [*held, each])
                    held = self.link.get("ptxas", [])
        elif _OF_THE_COMMAND.fullmatch(option):
            self.dropped.append(f"option {option!r} concerns the command and not the code")
        elif fault := describe_invalid_option(option):
            self.dropped.append(fault[0])
        elif option not in self.options:
            self.options.append(option)

    def _add_link(self, name: str, value: Any) -> None:
        try:
            LinkOptions.from_mapping({name: value})
        except JitltoError as error:
            self.dropped.append(error.what)
        else:
            self.link[name] = value


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
