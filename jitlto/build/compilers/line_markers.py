"""The files that a preprocessed text was made from, by the line markers that GCC and Clang leave in it.

The markers are exact where a dependency file is not: nvcc writes ``-MD`` from one run of the preprocessor, and a
header under ``#if __CUDA_ARCH__`` may be read in another.
"""

from __future__ import annotations

import re

# Flag 1: a file is entered. A #line directive leaves a marker without flags, so it can neither fake nor hide one.
_ENTERED = re.compile(rb'^# \d+ "((?:[^"\\\n]|\\.)*)" 1(?: [234])*$', re.M)
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")


def entered_files(preprocessed: bytes) -> tuple[str, ...]:
    """Return the files that were included, as the preprocessor spells their paths; sorted, each once."""
    return tuple(sorted({_unescape(path) for path in _ENTERED.findall(preprocessed)}))


def _unescape(path: bytes) -> str:
    def plain(match: re.Match[bytes]) -> bytes:
        code: bytes = match[1]
        return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else code

    return _ESCAPE.sub(plain, path).decode("utf-8", "surrogateescape")
