"""Sources without comments and blanks, which make no difference to a compiler; placeholders left in them."""

from __future__ import annotations

import hashlib
import re

# Comments and blanks of C++, except single spaces, which need no change. Literals come first, which may look like them.
_TOKEN = re.compile(
    r"""(?P<kept>
        R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)" | "(?:\\.|[^"\\\n])*" |
        '(?:(?<=[0-9a-fA-F]')(?<!u8')(?=[0-9a-fA-F])|(?:\\.|[^'\\\n])*')  # the first separates the digits of a number
    )
    | (?: [ ](?=[\s/]) | [\t\n\v\f\r] | //(?:\\\r?\n|[^\n])* | /\*.*?\*/ )
      (?: \s | //(?:\\\r?\n|[^\n])* | /\*.*?\*/ )*""",
    re.S | re.X,
)

_PLACEHOLDER = re.compile(r"@[A-Za-z_]\w*@")
_INCLUDE = re.compile(r"[ \t]*#[ \t]*include[ \t]*")


def digest(text: str) -> str:
    """Return the SHA-256 of a source without comments and blanks, equal for sources that differ in nothing else."""
    return hashlib.sha256(_TOKEN.sub(_shorten, text).strip().encode()).hexdigest()


def find_placeholder(text: str) -> tuple[str, int] | None:
    """Return the first CMake placeholder of a source, ``@name@``, and its line.

    Comments and literals do not count, but names of headers do.
    """
    if not _PLACEHOLDER.search(text):  # as in nearly all
        return None

    def blank(match: re.Match[str]) -> str:
        begin = text.rfind("\n", 0, match.start()) + 1
        if match["kept"] is not None and _INCLUDE.fullmatch(text, begin, match.start()):
            return match[0]
        return "\n" * match[0].count("\n") or " "

    code = _TOKEN.sub(blank, text)
    found = _PLACEHOLDER.search(code)
    return (found[0], code.count("\n", 0, found.start()) + 1) if found else None


def _shorten(match: re.Match[str]) -> str:
    if match["kept"] is not None:
        return match[0]
    return "\n" if "\n" in match[0] else " "
