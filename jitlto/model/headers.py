"""Virtual headers: the textual closure of a source's includes, as names and contents.

The compiler gets every header this way and never an include path: its output then depends on contents alone, and a
header that was not given is a compile error, never a stale one.
"""

from __future__ import annotations

import hashlib
import os.path
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from jitlto.errors import JitltoError

# Blanks, comments and continued lines may stand between the words of a directive.
_GAP = rb"(?:[ \t\f\v]|/\*(?:[^*]|\*(?!/))*\*/|\\[ \t]*\r?\n)*"
_HASH = rb"(?:#|%:|\?\?=)"
INCLUDE = re.compile(
    rb"^(" + _GAP + _HASH + _GAP + rb"(?:include|include_next|import)" + _GAP + rb""")([<"])([^>"\r\n]+)([>"])""", re.M
)
HAS_INCLUDE = re.compile(rb"""\b(__has_include(?:_next)?[ \t]*\([ \t]*)([<"])([^>"\r\n]+)([>"])""")
# A macro that names an absolute path would make NVRTC read that file, of which nothing else here would know.
_ABSOLUTE = re.compile(
    rb"^(" + _GAP + _HASH + _GAP + rb"define" + _GAP + rb"\w+" + _GAP + rb""")[<"][ \t]*/[^>"\r\n]*[>"]""", re.M
)

# What may stand among a source's leading includes.
_PLAIN_INCLUDE = re.compile(rb"[ \t]*#[ \t]*include[ \t]+[<\"][^>\"]+[>\"][ \t]*(?://.*)?")
_BLANK = re.compile(rb"[ \t]*(?://.*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*|#[ \t]*pragma[ \t]+once[ \t]*)?")
_LINE_RESET = b"#line 1"


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
        return hashlib.sha256(b"".join([_sha256(self.text), *_hashes(self.headers)])).hexdigest()


def digest_headers(headers: Mapping[str, bytes]) -> str:
    """SHA-256 over the names and contents of headers, in hexadecimal."""
    return hashlib.sha256(b"".join(_hashes(headers))).hexdigest()


def _hashes(headers: Mapping[str, bytes]) -> Iterator[bytes]:
    for name in sorted(headers):
        yield hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
        yield _sha256(headers[name])


@lru_cache(maxsize=4096)
def _sha256(content: bytes) -> bytes:
    # The sources of a build share their headers.
    return hashlib.sha256(content).digest()


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf")  # a BOM, which NVRTC does not take
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise JitltoError(what, code="jitlto-header-unreadable", where=path, hint="make it readable") from error


class _Rewritten(NamedTuple):
    """A text whose includes are spelled as names, the names that it includes, and all names that were looked up."""

    text: bytes
    included: tuple[str, ...]
    looked_up: frozenset[str]


class HeaderSearch:
    """Finds headers under a list of roots, the first that has one wins; files are read once.

    Args:
        roots: Directories, in the order of ``-I``.
        overlay: Headers given by content, which win over every root.
    """

    def __init__(self, roots: Sequence[Path], overlay: Mapping[str, bytes] | None = None) -> None:
        self._roots = tuple(roots)
        self._overlay = dict(overlay or {})
        self._contents: dict[str, bytes | None] = dict(self._overlay)
        self._hashes: dict[str, str | None] = {}
        self._rewritten: dict[str, _Rewritten] = {}

    def find(self, name: str) -> bytes | None:
        """Return the content of the header ``name``, None if no root has it."""
        if name.startswith("/"):
            return None  # an absolute path says nothing on another machine
        if name not in self._contents:
            candidates = (os.path.join(root, name) for root in self._roots)  # noqa: PTH118 - as below
            # Unlike Path.is_file, os.path.isfile takes any text for an answer.
            path = next((path for path in candidates if os.path.isfile(path)), None)  # noqa: PTH113
            self._contents[name] = _read(path) if path else None
        return self._contents[name]

    def sha256(self, name: str) -> str | None:
        """Return the SHA-256 of the header ``name``, None if no root has it."""
        if name not in self._hashes:
            content = self.find(name)
            self._hashes[name] = None if content is None else hashlib.sha256(content).hexdigest()
        return self._hashes[name]

    def closure(self, text: bytes, extra: Iterable[str] = ()) -> Source:
        """Return the source with every header that its includes, and theirs, name in any branch.

        A superset of what the compiler will read. Headers that no root has are left out: the compiler says which of
        them it needed. Includes through a macro cannot be seen; name them in ``extra``.
        """
        rewritten = self._rewrite(text, None)
        stack = [*rewritten.included, *extra]
        headers: dict[str, bytes] = {}
        while stack:
            name = stack.pop()
            if name in headers:
                continue
            header = self._header(name)
            headers[name] = header.text
            stack.extend(header.included)
        return Source(rewritten.text, headers)

    def looked_up(self, text: bytes, reads: Iterable[str]) -> frozenset[str]:
        """Return every name that decided how ``text`` and the headers ``reads`` are spelled in :meth:`closure`.

        Where a file of such a name comes or goes, an include may mean another file.
        """
        names = set(self._rewrite(text, None).looked_up)
        for name in reads:
            names.update(self._header(name).looked_up)
        return frozenset(names)

    def _header(self, name: str) -> _Rewritten:
        if name not in self._rewritten:
            self._rewritten[name] = self._rewrite(self.find(name) or b"", os.path.dirname(name))  # noqa: PTH120 - a name, no path
        return self._rewritten[name]

    def reachable(self, text: bytes) -> frozenset[str]:
        """Return the names of the headers in :meth:`closure` of ``text``."""
        return frozenset(self.closure(text).headers)

    def _rewrite(self, text: bytes, directory: str | None) -> _Rewritten:
        # NVRTC looks a virtual header up by the very text of the include, not relative to the includer. So the text
        # is replaced by the name, which lengthens lines but moves none.
        found: list[str] = []
        looked_up: set[str] = set()

        def replace(match: re.Match[bytes]) -> bytes:
            written = match[3].decode("utf-8", "surrogateescape").strip()
            if written.startswith("/"):
                # NVRTC would read the file itself, which says nothing on another machine.
                return b"#error jitlto does not include absolute paths: " + match[3]
            beside = match[2] == b'"' and directory is not None
            candidates = ([f"{directory}/{written}".lstrip("/")] if beside else []) + [written]
            for name in map(os.path.normpath, candidates):
                looked_up.add(name)
                if self.find(name) is not None:
                    found.append(name)
                    return b"".join((match[1], match[2], name.encode("utf-8", "surrogateescape"), match[4]))
            return match[0]

        def has(match: re.Match[bytes]) -> bytes:
            # A header that is not there stays as it is written, unless a file of this machine could answer.
            answer = replace(match)
            return answer if not answer.startswith(b"#error") else match[1] + b'"no absolute paths"'

        text = _ABSOLUTE.sub(lambda match: match[1] + b'"no absolute paths"', text)
        text = INCLUDE.sub(replace, HAS_INCLUDE.sub(has, text))
        return _Rewritten(text, tuple(found), frozenset(looked_up))


def split_leading_includes(text: bytes) -> tuple[bytes, bytes]:
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
        if bare == _LINE_RESET:
            first = number + 1
        elif _PLAIN_INCLUDE.fullmatch(bare):
            includes.append(bare + b"\n")
            lines[number] = b""
        elif not _BLANK.fullmatch(bare):
            break
    return b"".join(includes), b"\n".join(lines[first:])
