"""Error messages of NVRTC and nvcc, with hints and the source lines they refer to (nvJitLink's: ``nvjitlink``)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jitlto.errors import CompileError
from jitlto.model.header_search import HeaderSearch

#: Headers of the host's C++ library for which libcu++ has a device version.
HOST_HEADERS = frozenset((
    "algorithm", "array", "atomic", "cassert", "cfloat", "climits", "cmath", "concepts", "cstddef", "cstdint",
    "cstdlib", "cstring", "functional", "initializer_list", "iterator", "limits", "memory", "new", "numeric",
    "optional", "ratio", "span", "tuple", "type_traits", "utility", "variant", "stdint.h", "stddef.h",
))  # fmt: skip
_MISSING = re.compile(r'(?:cannot|could not) open source file "([^"]+)"')
_PROGRAM_NAME = re.compile(r"\b[0-9a-f]{20}\.cu\b")  # nvrtc.program_name
_CONTEXT_LINES = 3


def find_missing_header(log: str) -> str | None:
    """Return the header that a failed compile could not open; None if it failed for another reason."""
    match = _MISSING.search(log)
    return match[1] if match else None


def find_further_header(error: CompileError, search: HeaderSearch, given: Sequence[str]) -> str | None:
    """Return the header that a compile failed for and that ``search`` has: one that is included through a macro.

    None if it failed for another reason, or although the header was among those ``given``.
    """
    name = find_missing_header(error.log)
    return None if name is None or name in given or search.find(name) is None else name


def make_source_error(compiler: str, log: str, hint: str | None) -> CompileError:
    """Return the error for a source that a compiler rejected."""
    code = "compile-missing-header" if find_missing_header(log) else None
    return CompileError(f"{compiler} rejected the source", code=code, log=log, hint=hint)


def device_header(name: str) -> str:
    """Return the header of libcu++ that stands for one of :data:`HOST_HEADERS`."""
    return f"cuda/std/{f'c{name[:-2]}' if name.endswith('.h') else name}"


def find_hint(log: str) -> str | None:
    """Return advice on a compile error, where jitlto knows more than the compiler says."""
    name = find_missing_header(log)
    if name in HOST_HEADERS:
        return (
            f"NVRTC has no host C++ library: include <{device_header(name)}> instead of <{name}>, or compile the "
            'family with toolchain = "nvcc"'
        )
    if name and "@" in name:
        return f'{name} contains a CMake placeholder: declare syntax = "cmake" for the group or the family'
    if name:
        return f"{name} is not beside the including file, in the family's include directories or in the toolkit"
    return None


def annotate(error: CompileError, name: str, text: str, where: str) -> CompileError:
    """Return a compile error with the compiler's lines and the source's lines around the first few errors.

    Args:
        error: As raised by :func:`~jitlto.cuda.nvrtc.compile_source`.
        name: The source's name in the log.
        text: The source.
        where: The location that the message begins with.
    """
    log = _PROGRAM_NAME.sub(lambda _: name, error.log)
    if not log:  # jitlto's own error, not the compiler's
        return CompileError(error.what, code=error.code, where=where, hint=error.hint)
    if log.startswith(("nvrtc: error", "nvcc fatal")):
        return CompileError(
            f"the compiler rejected its options: {log}",
            code="compile-options",
            where=where,
            hint="check std, archs and options in family.toml, and in a package those under [tool.jitlto]",
            log=log,
        )
    numbers = sorted({int(n) for n in re.findall(rf"^{re.escape(name)}\((\d+)\): [\w ]*error", log, re.M)})
    excerpts = "\n    ...\n".join(_excerpt(text.splitlines(), number) for number in numbers[:_CONTEXT_LINES])
    what = "\n".join(["does not compile", *(f"    {line}" for line in log.splitlines())])
    if excerpts:  # none for errors in headers, whose lines the compiler shows
        what += f"\n  source:\n{excerpts}"
    return CompileError(what, code=error.code, where=where, hint=error.hint, log=log)


def _excerpt(lines: Sequence[str], number: int) -> str:
    first, last = max(1, number - _CONTEXT_LINES), min(len(lines), number + _CONTEXT_LINES)
    return "\n".join(f"  {'>' if n == number else ' '} {n:4} | {lines[n - 1]}" for n in range(first, last + 1))
