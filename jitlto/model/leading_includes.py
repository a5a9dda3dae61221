"""The includes at the head of a source, apart from the rest: what many sources have in common."""

from __future__ import annotations

import re

_INCLUDE = re.compile(rb"[ \t]*#[ \t]*include[ \t]+[<\"][^>\"]+[>\"][ \t]*(?://.*)?")
_SKIPPED = re.compile(rb"[ \t]*(?://.*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*|#[ \t]*pragma[ \t]+once[ \t]*)?")
_RESET = b"#line 1"


def split(text: bytes) -> tuple[bytes, bytes]:
    """Split a source into the includes at its head, and the rest with its lines where they were.

    The two one after the other compile to what ``text`` does. Lines count from the last ``#line 1`` at the head.
    """
    lines = text.split(b"\n")
    includes: list[bytes] = []
    first = 0
    for number, line in enumerate(lines):
        bare = line.rstrip(b"\r")
        if bare.rstrip().endswith((b"\\", b"??/")):  # goes on in the next line
            break
        if bare == _RESET:
            first = number + 1
        elif _INCLUDE.fullmatch(bare):
            includes.append(bare + b"\n")
            lines[number] = b""
        elif not _SKIPPED.fullmatch(bare):
            break
    return b"".join(includes), b"\n".join(lines[first:])
