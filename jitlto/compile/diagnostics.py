"""Error messages of NVRTC and nvcc, with hints and the places that they refer to (nvJitLink's: ``nvjitlink``)."""

import re
from collections.abc import Callable, Mapping

from jitlto.base.diagnostic import Location
from jitlto.base.errors import CompileError
from jitlto.compile.includes import scan_quickly
from jitlto.cuda import toolkit
from jitlto.record.headers import STD_HEADERS

_C_HEADERS = frozenset((
    "assert.h", "ctype.h", "errno.h", "fenv.h", "float.h", "inttypes.h", "limits.h", "locale.h", "malloc.h", "math.h",
    "memory.h", "pthread.h", "setjmp.h", "signal.h", "stdarg.h", "stdatomic.h", "stdbool.h", "stddef.h", "stdint.h",
    "stdio.h", "stdlib.h", "string.h", "threads.h", "time.h", "uchar.h", "unistd.h", "wchar.h",
))  # fmt: skip
ERROR = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): [\w ]*error(?: #[\w-]+)?: (?P<text>.*)$", re.M)
_MISSING = re.compile(r'(?:^(.+)\((\d+)\): [\w ]*error: )?(?:cannot|could not) open source file "([^"]+)"', re.M)
_MENTION = re.compile(r"^(.+?)\((\d+)\): [\w ]*error|\bat line (\d+) of (.+)$", re.M)
_PROGRAM_NAME = re.compile(r"\b[0-9a-f]{20}\.cu\b")  # nvrtc.program_name
_GUARD = "put it and what uses it under #ifndef __CUDACC_RTC__"


def find_missing_header(log: str) -> str | None:
    """Return the header that a failed compile could not open; None if it failed for another reason."""
    match = _MISSING.search(log)
    return match[3] if match else None


def make_source_error(compiler: str, log: str, hint: str | None) -> CompileError:
    """Return the error for a source that a compiler rejected."""
    code = "compile-missing-header" if find_missing_header(log) else None
    return CompileError(f"{compiler} rejected the source", code=code, log=log, hint=hint)


def is_host_header(log: str) -> bool:
    """Return whether a compile failed for a header of the host's C or C++ library, which NVRTC does not have."""
    name = find_missing_header(log) or ""
    is_cpp = re.fullmatch(r"\w+", name) and f"<{name}>" in log
    return name in _C_HEADERS or name.startswith("sys/") or bool(is_cpp)


def find_hint(log: str, otherwise: str = "") -> str | None:
    """Return advice on a compile error, where jitlto knows more than the compiler says.

    Args:
        log: The compiler's.
        otherwise: How to compile with the host's library; by default what a family may declare.
    """
    name = find_missing_header(log)
    if name is None:
        return None
    if is_host_header(log):
        device = f"cuda/std/{f'c{name[:-2]}' if name.endswith('.h') else name}"  # of the installed libcu++
        instead = f"remove the include of <{name}> (printf and the like are built in), {_GUARD}"
        if any((root / device).is_file() for root in toolkit.header_roots()):
            instead = f"include <{device}> instead of <{name}>"
        offered = "std_headers = true or " if (STD_HEADERS / name).is_file() else ""
        otherwise = otherwise or f'set {offered}toolchain = "nvcc" under [family]'
        return f"NVRTC has no host C++ library: {instead}, or {otherwise}"
    if "@" in name:
        return f'{name} contains a CMake placeholder: declare syntax = "cmake" for the group or the family'
    return (
        f"{name} is not beside the including file, in the family's include directories or in the toolkit; packages of "
        "their own, such as nvidia-curand and nvidia-cutlass, have the headers of device libraries"
    )


def find_include(
    error: CompileError,
    own: Mapping[str, bytes],
    headers: Mapping[str, bytes],
    place: Callable[[str, int], Location | None] = Location,
) -> CompileError | None:
    """Return an error for an author's include that leads to one in a toolkit's header itself; None if none does."""
    first = ERROR.search(error.log)
    if first is None or "detected during" in error.log[first.end() :].partition("\n\n")[0]:  # instantiation
        return None

    def leads(name: str, seen: set[str]) -> bool:
        seen.add(name)
        names = (each.name for each in scan_quickly(headers.get(name, b"")))
        return name == first[1] or any(leads(each, seen) for each in names if each not in seen)

    for name, text in own.items():
        for include in scan_quickly(text):
            if include.name not in own and leads(include.name, {*own}):
                where = place(name, text.count(b"\n", 0, include.start) + 1)
                what = f"includes <{include.name}>, which NVRTC does not understand: {first[0]}"
                hint = f'{_GUARD}, which NVRTC defines, or set toolchain = "nvcc" under [family]'
                return CompileError(what, code=error.code, where=where, hint=hint)
    return None


def word_at_error(log: str) -> str | None:
    """Return the word of the source at which the first error of a log is."""
    first = ERROR.search(log)
    _, line, mark, *_ = [*log[first.start() :].split("\n", 3), "", ""] if first else ("", "", "")
    word = re.match(r"\w+", line[mark.find("^") :]) if mark.strip() == "^" else None
    return word and word[0]


def annotate(
    error: CompileError, name: str, where: Location, place: Callable[[str, int], Location | None]
) -> CompileError:
    """Return a compile error at the first error of an author's, with the compiler's lines.

    Args:
        error: As raised by :func:`~jitlto.compile.nvrtc_program.run_step`.
        name: The source's name in the log.
        where: What is to blame if no place is.
        place: Returns the place of a line of a file that the log names; None of one that is not the author's.
    """
    log = _PROGRAM_NAME.sub(lambda _: name, error.log)
    if not log:  # jitlto's own error, not the compiler's
        return CompileError(error.what, code=error.code, where=error.place or where, hint=error.hint)
    if log.startswith(("nvrtc: error", "nvcc fatal")):
        what = f"the compiler rejected its options: {log}"
        hint = error.hint or "check std, archs, sass and options in family.toml"
        return CompileError(what, code="compile-options", where=where, hint=hint, log=log)
    if is_host_header(log) and (missing := _MISSING.search(log)):  # what else the compiler says would hide it
        what, found = f"includes <{missing[3]}>, a header of the host's library", place(missing[1], int(missing[2]))
        return CompileError(what, code=error.code, where=found or where, hint=error.hint)
    first = ERROR.search(log)
    places = (place(one or other, int(line or number)) for one, line, number, other in _MENTION.findall(log))
    where = next((each for each in places if each is not None), where)
    what = "\n".join([first["text"] if first else "does not compile", *(f"    {line}" for line in log.splitlines())])
    return CompileError(what, code=error.code, where=where, hint=error.hint, log=log)
