"""The files that a text was made from, by the line markers of GCC's and Clang's preprocessors."""

from __future__ import annotations

import re

# Flag 1: a file is entered. A #line directive leaves
# a marker without flags, so it can neither fake nor hide one.
_ENTERED = re.compile(rb'# \d+ "((?:[^"\\\n]|\\.)*)" 1(?: [234])*')
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")


def entered_files(preprocessed: bytes) -> tuple[str, ...]:
    """Return the files that a preprocessed text was made from, with the preprocessor's paths, sorted.

    Line markers are exact; a dependency file is not, because nvcc writes ``-MD`` from one of several runs of the
    preprocessor, and a header under ``#if __CUDA_ARCH__`` may be read in a different one.
    """
    entered = set()
    # A pattern would be tried at each of a hundred thousand lines.
    position = preprocessed.find(b'" 1')
    while position >= 0:
        start = preprocessed.rfind(b"\n", 0, position) + 1
        end = preprocessed.find(b"\n", position)
        end = len(preprocessed) if end < 0 else end
        if match := _ENTERED.fullmatch(preprocessed, start, end):
            entered.add(match[1])
        position = preprocessed.find(b'" 1', end)
    return tuple(sorted(set(map(_unescape, entered))))


def _unescape(path: bytes) -> str:
    def plain(match: re.Match[bytes]) -> bytes:
        code: bytes = match[1]
        return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else code

    return _ESCAPE.sub(plain, path).decode("utf-8", "surrogateescape")
