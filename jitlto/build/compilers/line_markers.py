"""The files that a text was made from, by the line markers of GCC's and Clang's preprocessors."""

from __future__ import annotations

import re

# Flag 1: a file is entered. A #line directive leaves
# a marker without flags, so it can neither fake nor hide one.
_ENTERED = re.compile(rb'\d+ "((?:[^"\\\n]|\\.)*)" 1(?: [234])*')
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")


def entered_files(preprocessed: bytes) -> tuple[str, ...]:
    """Return the files that a preprocessed text was made from, with the preprocessor's paths, sorted.

    Line markers are exact; a dependency file is not, because nvcc writes ``-MD`` from one of several runs of the
    preprocessor, and a header under ``#if __CUDA_ARCH__`` may be read in a different one.
    """
    # Split first: a pattern would be tried at each of a hundred thousand lines.
    markers = {part.partition(b"\n")[0] for part in (b"\n" + preprocessed).split(b"\n# ")[1:]}
    entered = (_ENTERED.fullmatch(marker) for marker in markers if b'" 1' in marker)
    return tuple(sorted({_unescape(match[1]) for match in entered if match}))


def _unescape(path: bytes) -> str:
    def plain(match: re.Match[bytes]) -> bytes:
        code: bytes = match[1]
        return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else code

    return _ESCAPE.sub(plain, path).decode("utf-8", "surrogateescape")
