"""A source with all headers that it can reach, by name and content."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jitlto.base.cached import cached_property

#: Headers with the names of C's and C++'s, which include those of ``cuda/std``, for ``std_headers``.
STD_HEADERS = Path(__file__).parents[1] / "families" / "std"
# What may stand among a source's leading includes.
_PLAIN_INCLUDE = re.compile(rb"[ \t]*#[ \t]*include[ \t]+[<\"][^>\"]+[>\"][ \t]*(?://.*)?")
_BLANK = re.compile(rb"[ \t]*(?://.*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*|#[ \t]*pragma[ \t]+once[ \t]*)?|#line 1(?: \".*\")?")


class HeaderSet(dict[str, bytes]):
    """Headers by name, with their contents, which many sources share. It is not changed once it is made."""

    @cached_property
    def hashes(self) -> bytes:
        """The SHA-256 of each name and of each content, sorted by name."""
        names = ((name.encode("utf-8", "surrogateescape"), self[name]) for name in sorted(self))
        return b"".join(hashlib.sha256(name).digest() + digest_content(content) for name, content in names)


@dataclass(frozen=True)
class Source:
    """A source with all headers that it can reach, by name and content: all that a compiler process needs.

    Args:
        text: The source; quoted includes are spelled with the names below.
        headers: Name relative to the root where it was found → content.
    """

    text: bytes
    headers: Mapping[str, bytes]

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of text, names and contents: of all that the compiler reads."""
        return hashlib.sha256(digest_content(self.text) + _join_hashes(self.headers)).hexdigest()


def digest_headers(headers: Mapping[str, bytes]) -> str:
    """SHA-256 over the names and contents of headers, in hexadecimal."""
    return hashlib.sha256(_join_hashes(headers)).hexdigest()


def _join_hashes(headers: Mapping[str, bytes]) -> bytes:
    return (headers if isinstance(headers, HeaderSet) else HeaderSet(headers)).hashes


@lru_cache(maxsize=4096)
def digest_content(content: bytes) -> bytes:
    """SHA-256 of a header's content; the headers of a build are in several sets."""
    return hashlib.sha256(content).digest()


def interfaces_first(interfaces: Sequence[str], name: str = "") -> str:
    """Return what precedes a source: includes of the interfaces, behind which the source's own lines are counted.

    Args:
        interfaces: In order.
        name: That of the source in messages; by default the compiler's own.
    """
    if not interfaces and not name:
        return ""
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    includes = "".join(f'#include "{interface}"\n' for interface in interfaces)
    return f'{includes}#line 1 "{quoted}"\n' if name else f"{includes}#line 1\n"


def split_leading_includes(text: bytes) -> tuple[bytes, bytes]:
    """Split a source into the includes at its head, and the rest with its lines where they were.

    The two one after the other compile to what ``text`` does.
    """
    lines = text.split(b"\n")
    includes: list[bytes] = []
    for number, line in enumerate(lines):
        bare = line.rstrip(b"\r")
        if bare.rstrip().endswith((b"\\", b"??/")):  # goes on in the next line
            break
        if _PLAIN_INCLUDE.fullmatch(bare):
            includes.append(bare + b"\n")
            lines[number] = b""
        elif not _BLANK.fullmatch(bare):
            break
    return b"".join(includes), b"\n".join(lines)
