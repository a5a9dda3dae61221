"""Compiler options by which a compiler reads or writes files beside what it was given, or takes options for others."""

from __future__ import annotations

import re

# NVRTC's, without dashes: it takes most with one dash and with two (NVRTC's «Supported Compile Options»).
_FILES = frozenset(
    [
        *("include", "pre-include", "pch", "create-pch", "use-pch", "pch-dir", "time", "fdevice-time-trace"),
        *("include-path", "Xptxas", "ptxas-options"),
    ]
)
# ptxas's (`ptxas --help`); what only prints ends in an internal error of nvJitLink's.
_PTXAS_FILES = frozenset(
    [
        *("options-file", "optf", "apply-controls", "output-file", "o", "input-as-string", "ias"),
        *("help", "h", "version", "V"),
    ]
)


def _name(option: str) -> str:
    """An option's name without dashes; what follows a NUL no compiler sees."""
    option = option.partition("\0")[0]
    return re.split(r"[=\s]", option.strip().lstrip("-"), maxsplit=1)[0]


def leaves(option: str) -> bool:
    """Whether a compiler's option names a file or a directory, or is none that begins with a dash."""
    name = _name(option)
    return not option.startswith("-") or name in _FILES or name.startswith("I") or _absolute(option)


def ptxas_leaves(option: str) -> bool:
    """Whether an option for ptxas makes it read or write a file; a word without a dash is a file's name to it."""
    return not option.startswith("-") or _name(option) in _PTXAS_FILES


def _absolute(option: str) -> bool:
    """Whether it defines a macro as an absolute path, which an ``#include`` could name."""
    return re.search(r"""["<]\s*/""", option) is not None
